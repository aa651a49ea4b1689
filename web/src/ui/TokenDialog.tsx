import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { failure, giveToken, map, tokenAsked } from "../state";

export function TokenDialog(): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const [value, setValue] = useState("");
  const asked = tokenAsked.value;
  useEffect(() => {
    if (asked && !dialog.current?.open) dialog.current?.showModal();
    if (!asked) dialog.current?.close();
  }, [asked]);
  const close = (): void => {
    tokenAsked.value = null;
    if (!map.value) failure.value = { title: "A token is needed", text: "Without it this service shows nothing.", status: 401 };
  };
  return (
    <dialog ref={dialog} aria-labelledby="token-title" onCancel={close}>
      <form method="dialog" onSubmit={(event) => { event.preventDefault(); giveToken(value); setValue(""); }}>
        <h2 id="token-title">Access token</h2>
        <p>{asked === "wrong" ? "The service did not take that token. Try another." : "This service asks for a token. Whoever started it knows it."}</p>
        <label class="field">
          <span>Token</span>
          <input type="password" autocomplete="off" required value={value} aria-invalid={asked === "wrong"} onInput={(event) => setValue(event.currentTarget.value)} />
        </label>
        <p class="hint">It is kept in this tab only and sent to this service alone.</p>
        <div class="row end">
          <button type="button" class="button quiet" onClick={close}>Cancel</button>
          <button type="submit" class="button primary">Continue</button>
        </div>
      </form>
    </dialog>
  );
}
