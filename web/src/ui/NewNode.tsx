import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { arrange, exampleOf, labelOf, lengthOf } from "../form";
import { askPrediction, clearNew, coverage, failure, fieldErrors, info, known, landed, predicting, predictProblem, typed } from "../state";
import type { Field } from "../types";
import { ProblemBox } from "./Problem";
import { Result } from "./Result";

export function NewNode(): JSX.Element {
  const form = useRef<HTMLFormElement>(null);
  const fields = info.value?.form ?? [];
  const errors = fieldErrors.value;
  useEffect(() => {
    // The first wrong field takes the focus, so that nobody has to look for it.
    if (Object.keys(errors).length) form.current?.querySelector<HTMLElement>("[aria-invalid=true]")?.focus();
  }, [errors]);
  if (failure.value) return <p class="hint">The form appears when the service answers.</p>;
  if (!info.value) return <FormSkeleton />;
  if (!fields.length) return <div class="empty"><h2>No form</h2><p>This model takes feature vectors only. Send them to <code>/v1/predict</code>; see the <a href="docs">API page</a>.</p></div>;
  const submit = (event: Event): void => {
    event.preventDefault();
    void askPrediction();
  };
  return (
    <>
      <form id="new-node" ref={form} noValidate onSubmit={submit} aria-describedby="new-hint">
        <p class="hint" id="new-hint">Describe a node that has no edges yet. Leave empty what you do not know.</p>
        <Fields fields={fields} />
        <Options />
        {predictProblem.value ? <ProblemBox problem={predictProblem.value} retry={predictProblem.value.status === -1 ? undefined : () => void askPrediction()} /> : null}
        <div class="row">
          <button type="submit" class="button primary grow" disabled={predicting.value}>{predicting.value ? <><span class="spinner" aria-hidden="true" />Asking the model…</> : "Place it on the map"}</button>
          <Examples fields={fields} />
          {landed.value || Object.values(typed.value).some(Boolean) ? <button type="button" class="button quiet" onClick={clearNew}>Clear</button> : null}
        </div>
      </form>
      {landed.value ? <Result landed={landed.value} busy={predicting.value} /> : null}
    </>
  );
}

function Fields({ fields }: { fields: Field[] }): JSX.Element {
  const { shown, folded } = arrange(fields);
  const wrong = folded.some((field) => fieldErrors.value[field.name]);
  return (
    <>
      <div class="fields">{shown.map((field) => <Input key={field.name} field={field} />)}</div>
      {folded.length ? (
        <details class="options" open={wrong || undefined}>
          <summary>{folded.length} more fields</summary>
          <div class="fields">{folded.map((field) => <Input key={field.name} field={field} />)}</div>
        </details>
      ) : null}
    </>
  );
}

function FormSkeleton(): JSX.Element {
  return <div class="skeleton" aria-hidden="true"><i /><i class="tall" /><i /><i /></div>;
}

function Examples({ fields }: { fields: Field[] }): JSX.Element | null {
  const filled = fields.map((field) => [field.name, exampleOf(field)] as const).filter(([, value]) => value);
  if (!filled.length || Object.values(typed.value).some(Boolean)) return null;
  return <button type="button" class="button quiet" onClick={() => (typed.value = Object.fromEntries(filled))}>Use an example</button>;
}

function Input({ field }: { field: Field }): JSX.Element {
  const error = fieldErrors.value[field.name];
  const id = `field-${field.name}`;
  const value = typed.value[field.name] ?? "";
  const set = (next: string): void => {
    typed.value = { ...typed.value, [field.name]: next };
    if (error) fieldErrors.value = Object.fromEntries(Object.entries(fieldErrors.value).filter(([name]) => name !== field.name));
  };
  const shared = { id, name: field.name, value, "aria-invalid": Boolean(error), "aria-describedby": error ? `${id}-error` : undefined };
  const onInput = (event: { currentTarget: HTMLInputElement | HTMLTextAreaElement }): void => set(event.currentTarget.value);
  const send = (event: KeyboardEvent): void => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void askPrediction();
  };
  return (
    <div class={field.kind === "number" ? "field half" : "field"}>
      <label for={id}>{labelOf(field.name)}{field.kind === "vector" ? <small>{lengthOf(field) ? `${lengthOf(field)} numbers` : "numbers"}</small> : null}</label>
      {field.kind === "text" ? <textarea {...shared} rows={5} placeholder={hintOf(field)} onInput={onInput} onKeyDown={send} />
        : field.kind === "vector" ? <textarea {...shared} rows={2} placeholder="0.12, 0.5, …" onInput={onInput} onKeyDown={send} />
        : field.kind === "category" ? <Choice field={field} shared={shared} set={set} />
        : <input {...shared} type="text" inputMode="decimal" autocomplete="off" placeholder={hintOf(field)} onInput={onInput} />}
      {error ? <p class="field-error" id={`${id}-error`} role="alert">{error}</p> : null}
    </div>
  );
}

function hintOf(field: Field): string {
  const example = exampleOf(field);
  return example ? `e.g. ${example.length > 90 ? `${example.slice(0, 90)}…` : example}` : "";
}

const FEW_CHOICES = 40;

/** A list where it can be overlooked, a field with suggestions where it is long or unknown values may come. */
function Choice({ field, shared, set }: { field: Field; shared: Record<string, unknown>; set: (value: string) => void }): JSX.Element {
  const choices = field.choices ?? [];
  const value = String(shared.value ?? "");
  if (choices.length && choices.length <= FEW_CHOICES)
    return (
      <select {...shared} onChange={(event) => set(event.currentTarget.value)}>
        <option value="">not known</option>
        {choices.map((choice) => <option key={choice} value={choice}>{choice}</option>)}
        {value && !choices.map(String).includes(value) ? <option value={value}>{value}</option> : null}
      </select>
    );
  return (
    <>
      <input {...shared} type="text" list={`${String(shared.id)}-list`} autocomplete="off" placeholder={hintOf(field)} onInput={(event) => set(event.currentTarget.value)} />
      <datalist id={`${String(shared.id)}-list`}>{choices.slice(0, 500).map((choice) => <option key={choice} value={choice} />)}</datalist>
    </>
  );
}

function Options(): JSX.Element {
  const tasks = info.value?.tasks ?? [];
  return (
    <details class="options">
      <summary>Options</summary>
      {tasks.includes("classes") || !tasks.length ? (
        <div class="field">
          <label for="coverage">Prediction set holds the true class</label>
          <select id="coverage" value={String(coverage.value)} onChange={(event) => (coverage.value = Number(event.currentTarget.value))}>
            {[0.8, 0.9, 0.95, 0.99].map((share) => <option key={share} value={String(share)}>{Math.round(share * 100)} times of 100</option>)}
          </select>
        </div>
      ) : null}
      <div class="field">
        <label for="known">Known neighbours<small>node ids, if it has some already</small></label>
        <input id="known" type="text" autocomplete="off" spellcheck={false} placeholder="none yet" value={known.value} onInput={(event) => (known.value = event.currentTarget.value)} />
      </div>
    </details>
  );
}
