import type { JSX, RefObject } from "preact";

const KEYS: [string[], string][] = [
  [["/"], "search for a node"],
  [["n"], "type a new node"],
  [["Tab"], "go to the map, the legend, the panel"],
  [["←", "→", "↑", "↓"], "move the map (with Shift: farther)"],
  [["+", "−"], "zoom in and out"],
  [["0"], "see the whole map"],
  [["Enter"], "open the node at the cross in the middle"],
  [["Esc"], "close the card, leave a field"],
];

export function HelpDialog({ dialog }: { dialog: RefObject<HTMLDialogElement | null> }): JSX.Element {
  return (
    <dialog ref={dialog} aria-labelledby="help-title" onClick={(event) => event.target === dialog.current && dialog.current?.close()}>
      <div class="help">
        <h2 id="help-title">Keyboard</h2>
        <dl>
          {KEYS.map(([keys, text]) => (
            <div key={text}><dt>{keys.map((key) => <kbd key={key}>{key}</kbd>)}</dt><dd>{text}</dd></div>
          ))}
        </dl>
        <p class="hint">Arrow keys work while the map has the focus. Every result also stands as a table in the panel.</p>
        <div class="row end"><button type="button" class="button primary" onClick={() => dialog.current?.close()}>Close</button></div>
      </div>
    </dialog>
  );
}
