// j and k in a table: which row is chosen, and what Enter does with it, where rows lead anywhere.
import { useState } from "../lib/html.js"
import { useKeys } from "../lib/keys.js"

export function useRows(title, word, length, open) {
  const [at, setAt] = useState(-1)
  const move = (by) => {
    const next = Math.max(0, Math.min(length - 1, at + by))
    setAt(next)
    requestAnimationFrame(() => document.querySelector("tr[aria-selected='true']")?.scrollIntoView({ block: "nearest" }))
  }
  useKeys(title, [
    { keys: ["j", "k"], label: `next, previous ${word}`, hint: word, run: (pressed) => length && move(pressed === "j" ? 1 : -1) },
    ...(open ? [{ keys: ["Enter"], label: "open", hint: "open", run: () => at >= 0 && at < length && open(at) }] : []),
  ])
  return { selected: at, select: setAt }
}
