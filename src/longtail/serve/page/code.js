// The question on the page, as others can ask it.

import { address, modelPath } from "./api.js";

/** What is sent to ask for the labels of `texts` with the settings of the page. */
export function request(texts, { k, threshold, exclude, known }, abilities = {}) {
  return {
    texts,
    k,
    ...(threshold > 0 && { threshold }),
    ...(exclude.length && { exclude }),
    ...(known.length && abilities.known && { known: texts.map(() => known) }),
  };
}

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

export function curl(model, body) {
  const json = JSON.stringify(body);
  return `curl ${quoted(address(modelPath(model, "/predict")))} \\\n  -H 'Content-Type: application/json' \\\n  -d ${quoted(json)}\n`;
}

export function python(model, body) {
  return `import json
import urllib.request

question = urllib.request.Request(
    ${JSON.stringify(address(modelPath(model, "/predict")))},
    data=json.dumps(${JSON.stringify(body)}).encode(),
    headers={"Content-Type": "application/json"},
)
with urllib.request.urlopen(question) as answer:
    for found in json.load(answer)["results"][0]:
        print(f"{found['score']:.3f}  {found['name']}")
`;
}

export const json = (answer) => `${JSON.stringify(answer, null, 2)}\n`;
