import type { JSX } from "preact";
import type { Problem } from "../state";
import { Icon } from "./Icons";

export function ProblemBox({ problem, retry, large }: { problem: Problem; retry?: () => void; large?: boolean }): JSX.Element {
  return (
    <div class={large ? "problem large" : "problem"} role="alert">
      <Icon name="warn" size={large ? 28 : 18} />
      <div>
        <strong>{problem.title}</strong>
        <p>{problem.text}</p>
        {retry ? <button type="button" class="button" onClick={retry}>Try again</button> : null}
      </div>
    </div>
  );
}
