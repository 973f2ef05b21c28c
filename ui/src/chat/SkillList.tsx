/** The skills that a slash offers. */

import type { Skill } from "../api";
import styles from "./chat.module.css";

export function SkillList({
  skills,
  chosen,
  choose,
  take,
}: {
  skills: Skill[];
  chosen: number;
  choose: (at: number) => void;
  take: (skill: Skill) => void;
}) {
  return (
    <ul className={styles.slash} id="slash" role="listbox" aria-label="Skills">
      {skills.map((skill, at) => (
        <li
          key={skill.name}
          id={`slash-${at}`}
          role="option"
          aria-selected={at === chosen}
          onMouseMove={() => choose(at)}
          onMouseDown={(event) => {
            event.preventDefault();
            take(skill);
          }}
        >
          <b>/{skill.name}</b> <small>{skill.description}</small>
        </li>
      ))}
    </ul>
  );
}
