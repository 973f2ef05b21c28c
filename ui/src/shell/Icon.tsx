/** Small icons; their parent has the label. */

const PATHS = {
  menu: "M4 7h16M4 12h16M4 17h16",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16 16l4.5 4.5",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M4.9 4.9l1.4 1.4M17.7 17.7l1.4 1.4M2 12h2M20 12h2M4.9 19.1l1.4-1.4M17.7 6.3l1.4-1.4",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z",
  screen: "M3 5h18v11H3zM9 20h6M12 16v4",
  leave: "M14 4h5v16h-5M10 8l-4 4 4 4M6 12h10",
  plus: "M12 5v14M5 12h14",
  pen: "M4 20l1-4L16.5 4.5l3 3L8 19l-4 1zM14 7l3 3",
  down: "M12 4v11M7.5 11l4.5 4.5L16.5 11M5 20h14",
  bin: "M4 7h16M9 7V4h6v3M6.5 7l1 13h9l1-13M10 11v5M14 11v5",
  close: "M6 6l12 12M18 6L6 18",
  clip: "M20 11.5l-8 8a5 5 0 0 1-7-7l8.5-8.5a3.3 3.3 0 0 1 4.7 4.7L9.7 17a1.7 1.7 0 0 1-2.4-2.4L15 7",
  send: "M12 20V5M6 10.5L12 4.5l6 6",
  stop: "M7 7h10v10H7z",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  wrap: "M4 6h16M4 12h12.5a3 3 0 0 1 0 6H12M14.5 15.5L12 18l2.5 2.5M4 18h4",
  code: "M8.5 7L3.5 12l5 5M15.5 7l5 5-5 5",
  again: "M4 12a8 8 0 1 0 2.5-5.8M4 4v4.5h4.5",
  fork: "M6 4v9a4 4 0 0 0 4 4h8M15 13.5l3.5 3.5-3.5 3.5M6 8h6a4 4 0 0 0 4-4",
  trace: "M4 6h9M8 12h9M11 18h9",
  canvas: "M4 5h16v14H4zM13 5v14",
  more: "M5 11a1 1 0 1 0 0 2 1 1 0 0 0 0-2zM12 11a1 1 0 1 0 0 2 1 1 0 0 0 0-2zM19 11a1 1 0 1 0 0 2 1 1 0 0 0 0-2z",
  help: "M9.2 9a3 3 0 1 1 4.3 2.7c-.9.5-1.5 1.1-1.5 2.3M12 17.5h.01",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  folder: "M3 6h6l2 2.5h10V19H3z",
  undo: "M9 14L4 9l5-5M4 9h10a5.5 5.5 0 0 1 0 11h-4",
  settings: "M4 7h9M17 7h3M4 17h3M11 17h9M15 4.5v5M9 14.5v5",
  raise: "M4 5h16v14H4zM4 10h16M12 17v-4M10 15l2-2 2 2",
  lower: "M4 5h16v14H4zM4 14h16M12 7v4M10 9l2 2 2-2",
  expand: "M9 5H4v14h5M15 5h5v14h-5M7 12h10M9.5 9.5L7 12l2.5 2.5M14.5 9.5L17 12l-2.5 2.5",
  shrink: "M4 5v14M20 5v14M6 12h4M14 12h4M8.5 9.5L11 12l-2.5 2.5M15.5 9.5L13 12l2.5 2.5",
  share:
    "M16 5.5a2.5 2.5 0 1 0 5 0 2.5 2.5 0 1 0-5 0M3 12a2.5 2.5 0 1 0 5 0 2.5 2.5 0 1 0-5 0M16 18.5a2.5 2.5 0 1 0 5 0 2.5 2.5 0 1 0-5 0M7.7 10.9l8.6-4.3M7.7 13.1l8.6 4.3",
  bell: "M6 16V11a6 6 0 0 1 12 0v5l1.5 2h-15zM10 20.5a2 2 0 0 0 4 0",
  mute: "M6 16V11a6 6 0 0 1 9-5.2M18 11v5l1.5 2h-13M10 20.5a2 2 0 0 0 4 0M4 4l16 17",
  redo: "M15 14l5-5-5-5M20 9H10a5.5 5.5 0 0 0 0 11h4",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg
      className="icon"
      viewBox="0 0 24 24"
      width="18"
      height="18"
      aria-hidden="true"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.8"
      strokeLinecap="round"
      strokeLinejoin="round"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}
