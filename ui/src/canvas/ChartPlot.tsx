/** The picture of a chart, drawn by Chart.js; loaded when there is one. */

import {
  ArcElement,
  BarController,
  BarElement,
  CategoryScale,
  Chart,
  Filler,
  LinearScale,
  LineController,
  LineElement,
  PieController,
  PointElement,
  Tooltip,
} from "chart.js";
import { useEffect, useRef, useState } from "react";

import { useDark } from "../parts/dark";
import { chartConfig, type Look, type Options } from "./chartConfig";
import type { ChartData } from "./deck";
import styles from "./chart.module.css";

Chart.register(ArcElement, BarController, BarElement, CategoryScale, Filler, LinearScale, LineController, LineElement);
Chart.register(PieController, PointElement, Tooltip);

const COLOURS = 6;
const SMALL = 0.8; // letters of an axis, beside those of the text

interface Props {
  data: ChartData;
  label: string;
  options: Options;
}

export default function ChartPlot({ data, label, options }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [look, setLook] = useState("");
  const dark = useDark();
  useEffect(() => {
    // A slide has colours and letters of its own, and the page gets its colours after this effect.
    const frame = requestAnimationFrame(() => readLook(canvas.current, setLook));
    return () => cancelAnimationFrame(frame);
  });
  useEffect(() => {
    if (!look || !canvas.current?.getContext("2d")) return;
    const config = chartConfig(data, JSON.parse(look) as Look, options);
    const onResize = (chart: Chart) => readLook(chart.canvas, setLook);
    const chart = new Chart(canvas.current, { ...config, options: { ...config.options, onResize } });
    return () => chart.destroy();
  }, [data, look, options, dark]);
  return (
    <div className={styles.plot}>
      <canvas ref={canvas} role="img" aria-label={label} />
    </div>
  );
}

/** Pass on the colours of the page, as a canvas wants them: without variables. A chart that was closed meanwhile has no canvas. */
function readLook(canvas: HTMLCanvasElement | null, done: (look: string) => void): void {
  if (!canvas?.parentElement) return;
  const probe = canvas.parentElement.appendChild(document.createElement("i"));
  const read = (value: string) => {
    probe.style.color = value;
    return getComputedStyle(probe).color;
  };
  const look: Look = {
    colours: Array.from({ length: COLOURS }, (_, at) => read(`var(--chart-${at})`)),
    ink: read("inherit"),
    ground: read("var(--slide-ground, var(--raised))"),
    size: Math.round(parseFloat(getComputedStyle(probe).fontSize) * SMALL),
  };
  probe.remove();
  done(JSON.stringify(look));
}
