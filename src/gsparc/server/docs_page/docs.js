"use strict";
// Shows /openapi.json: each route with its parameters, body and answers, and a way to try it. No library, no network
// beyond the service itself. All text goes in as text nodes: a column's name cannot become markup.

let token = "";
const byId = (id) => document.getElementById(id);

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function headers(extra = {}) {
  return token ? { ...extra, Authorization: `Bearer ${token}` } : extra;
}

function resolve(schema, root) {
  if (!schema || !schema.$ref) return schema || {};
  return schema.$ref.slice(2).split("/").reduce((part, key) => part[key], root);
}

// A value that fits a schema, for the request field.
function sample(schema, root, depth = 0) {
  const found = resolve(schema, root);
  if (depth > 6) return null;
  if ("const" in found) return found.const;
  if (found.examples) return found.examples[0];
  if (found.oneOf) return sample(found.oneOf[0], root, depth);
  if (found.properties) {
    const wanted = Object.entries(found.properties).filter(([name]) => depth > 0 || (found.required || []).includes(name));
    return Object.fromEntries(wanted.map(([name, part]) => [name, sample(part, root, depth + 1)]));
  }
  if (found.anyOf) return sample(found.anyOf[0], root, depth);
  if (found.type === "array") return Array.from({ length: Math.min(found.minItems || 1, 64) }, () => sample(found.items, root, depth + 1));
  return { string: "text", integer: 1, number: 0.5, boolean: true }[found.type] ?? null;
}

function parametersTable(parameters) {
  const rows = parameters.map((part) => make("tr", {},
    make("td", {}, make("code", {}, part.name)), make("td", {}, part.in),
    make("td", {}, part.description || ""),
    make("td", {}, make("input", { name: part.name, ariaLabel: part.name, value: part.schema.default ?? "" }))));
  return make("table", {}, ...rows);
}

function answersTable(responses) {
  const rows = Object.entries(responses).map(([status, part]) =>
    make("tr", {}, make("td", {}, make("code", {}, status)), make("td", {}, part.description || "")));
  return make("table", {}, ...rows);
}

async function send(method, path, parameters, form, output) {
  let address = path;
  const query = new URLSearchParams();
  for (const part of parameters) {
    const value = form.elements[part.name].value;
    if (part.in === "path") address = address.replace(`{${part.name}}`, encodeURIComponent(value));
    else if (value !== "") query.set(part.name, value);
  }
  if ([...query].length) address += `?${query}`;
  const body = form.elements.body;
  const options = { method, headers: headers(body ? { "Content-Type": "application/json" } : {}) };
  if (body) options.body = body.value;
  output.hidden = false;
  output.textContent = "…";
  try {
    const answer = await fetch(address.slice(1), options);
    const kind = answer.headers.get("Content-Type") || "";
    let text = kind.startsWith("application/octet-stream") ? `${(await answer.arrayBuffer()).byteLength} bytes` : await answer.text();
    if (kind.startsWith("application/json")) text = JSON.stringify(JSON.parse(text), null, 2);
    output.textContent = `${answer.status}\n${text}`;
  } catch (error) {
    output.textContent = `no answer: ${error.message}`;
  }
}

function operationBlock(path, method, operation, root) {
  const parameters = operation.parameters || [];
  const content = operation.requestBody && operation.requestBody.content["application/json"];
  const form = make("form", {});
  const output = make("pre", { hidden: true, ariaLive: "polite" });
  if (parameters.length) form.append(parametersTable(parameters));
  if (content) {
    const text = JSON.stringify(sample(content.schema, root), null, 2);
    form.append(make("p", {}, make("label", {}, "Body", make("textarea", { name: "body", value: text, spellcheck: false }))));
  }
  form.append(make("p", {}, make("button", {}, "Try it")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(method.toUpperCase(), path, parameters, form, output);
  });
  const schema = content
    ? [make("details", {}, make("summary", {}, "Schema of the body"), make("pre", {}, JSON.stringify(resolve(content.schema, root), null, 2)))]
    : [];
  return make("details", { className: "operation" },
    make("summary", {}, make("span", { className: "method" }, method.toUpperCase()), " ", make("code", {}, path), " ", operation.description || operation.summary || ""),
    form, output, ...schema,
    make("details", {}, make("summary", {}, "Answers"), answersTable(operation.responses)));
}

function show(root) {
  byId("version").textContent = root.info.version;
  byId("about").textContent = root.info.description;
  const groups = new Map();
  for (const [path, operations] of Object.entries(root.paths)) {
    for (const [method, operation] of Object.entries(operations)) {
      const tag = (operation.tags || ["other"])[0];
      groups.set(tag, [...(groups.get(tag) || []), operationBlock(path, method, operation, root)]);
    }
  }
  const blocks = [...groups].flatMap(([tag, operations]) => [make("h2", {}, tag), ...operations]);
  byId("operations").replaceChildren(...blocks);
}

async function load() {
  const answer = await fetch("openapi.json", { headers: headers() });
  byId("token-form").hidden = answer.status !== 401 && !token;
  if (answer.ok) show(await answer.json());
  else byId("about").textContent = (await answer.json()).error.message;
}

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value;
  load();
});
load().catch((error) => { byId("about").textContent = `The description cannot be read: ${error.message}`; });
