// Keyboard: each page says what its keys do; the help and the status bar are made of the same list.
import { useLayoutEffect, useRef } from "./html.js"

const scopes = [] // the last one wins
let pendingG = 0
const SEQUENCE_MS = 1000 // "g r" is one command if the second key follows within a second

export const letters = {
  get on() {
    return read("letters") !== "off"
  },
  set on(given) {
    write("letters", given ? "" : "off")
  },
}

export function read(name) {
  try {
    return localStorage.getItem(name) || ""
  } catch {
    return ""
  }
}
export function write(name, text) {
  try {
    if (text) localStorage.setItem(name, text)
    else localStorage.removeItem(name)
  } catch {
    // storage is closed to this page: the choice holds until it is left
  }
}

const isField = (target) =>
  target.matches?.("input:not([type=checkbox]):not([type=range]), select, textarea, [contenteditable]") ?? false

/** `bindings`: [{keys: ["j"], label, run}]; with `hint` it stands in the status bar. The newest page's keys win. */
export function useKeys(title, bindings) {
  const scope = useRef({})
  Object.assign(scope.current, { title, bindings })
  useLayoutEffect(() => {
    const mine = scope.current
    scopes.push(mine)
    dispatchEvent(new Event("keyschange"))
    return () => {
      scopes.splice(scopes.indexOf(mine), 1)
      dispatchEvent(new Event("keyschange"))
    }
  }, [])
}
export const current = () => scopes

function name(event) {
  if (pendingG && Date.now() - pendingG < SEQUENCE_MS) return `g ${event.key}`
  return event.key
}

addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") return fire("Ctrl K", event)
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return undefined
  if (document.querySelector("dialog[open]")) return undefined // a dialog has its own keys
  if (isField(event.target)) {
    if (event.key === "Escape") event.target.blur()
    return undefined
  }
  if (event.key.length === 1 && !letters.on && event.key !== "?") return undefined
  const pressed = name(event)
  if (pressed.startsWith("g ") && fire(pressed, event)) {
    pendingG = 0
    return undefined
  }
  pendingG = event.key === "g" ? Date.now() : 0
  if (event.key === "Enter" && event.target.matches("a, button, summary")) return undefined // it does its own
  return fire(event.key, event)
})

function fire(pressed, event) {
  for (const scope of [...scopes].reverse()) {
    const binding = scope.bindings.find((entry) => entry.keys.includes(pressed))
    if (binding) {
      event.preventDefault()
      binding.run(pressed, event)
      return true
    }
  }
  return false
}
