// Small parts that every page uses: icon, phase, command to copy, note, card, toasts, states of a list.
import { ApiError } from "./api.js"
import { capital, now, seconds, span, utc } from "./format.js"
import { html, useCallback, useEffect, useLayoutEffect, useRef, useState } from "./html.js"

export const Icon = ({ name }) => html`<svg class="i" viewBox="0 0 16 16" aria-hidden="true"><use href=${`#i-${name}`} /></svg>`

export const Phase = ({ phase, word, big, changed }) => html`<span
  class=${`phase ${phase === "early" ? "stopped" : phase}${big ? " big" : ""}${phase === "running" ? " live" : ""}${changed ? " changed" : ""}`}
  ><${Icon} name=${phase} />${word || (phase === "early" ? "stopped early" : phase)}</span
>`

export const Card = ({ title, sub, end, id, children, className = "", lead }) => html`<section
  class=${`card ${className}`}
  aria-labelledby=${`h-${id}`}
  id=${id}
>
  <header>${lead}<h2 id=${`h-${id}`}>${title}</h2>${sub && html`<span class="sub">${sub}</span>`}${end && html`<div class="end">${end}</div>`}</header>
  ${children}
</section>`

export const Note = ({ kind = "", icon = "info", children, end, alert }) => html`<div class=${`note ${kind}`} role=${alert ? "alert" : "status"}>
  <${Icon} name=${icon} />
  <div>${children}</div>
  ${end && html`<span class="end">${end}</span>`}
</div>`

export async function copy(text, what = "Command") {
  try {
    await navigator.clipboard.writeText(text)
  } catch {
    const area = document.createElement("textarea") // no clipboard API without a secure origin
    area.value = text
    document.body.append(area)
    area.select()
    document.execCommand("copy")
    area.remove()
  }
  toast(`${what} copied`, { icon: "succeeded", kind: "ok" })
}

/** A command breaks between its words: `--on` is not torn. */
export const Command = ({ text }) => html`<div class="cmd">
  <code>${text.split(" ").map((word, at) => html`${at > 0 && " "}<span>${word}</span>`)}</code>
  <button class="btn plain icon" aria-label=${`Copy: ${text}`} onClick=${() => copy(text)}><${Icon} name="copy" /></button>
</div>`

export const Seg = ({ label, options, chosen, onChoose }) => html`<div class="seg" role="group" aria-label=${label}>
  ${options.map(
    ([value, word]) => html`<button type="button" aria-pressed=${String(value === chosen)} onClick=${() => onChoose(value)}>${word}</button>`,
  )}
</div>`

export const Select = ({ label, options, chosen, onChoose }) => html`<select
  class="select"
  aria-label=${label}
  value=${chosen}
  onChange=${(event) => onChoose(event.target.value)}
>
  ${options.map(([value, word]) => html`<option value=${value} selected=${value === chosen}>${word}</option>`)}
</select>`

export const Age = ({ at, word = "" }) => html`<time title=${utc(at)}>${at === null || at === undefined ? "-" : span(now() - seconds(at))}${word}</time>`

export const Bar = ({ share, kind = "" }) => html`<span class=${`bar ${kind}`} aria-hidden="true"><i style=${{ width: `${Math.min(100, share)}%` }}></i></span>`

export const Empty = ({ title, children }) => html`<div class="card"><div class="empty"><h2>${title}</h2>${children}</div></div>`

/** Bones in the shape of what comes, after 300 ms; after 5 s a line says for what. */
export function Loading({ what, rows = 8 }) {
  const [stage, setStage] = useState(0)
  useEffect(() => {
    const timers = [setTimeout(() => setStage(1), 300), setTimeout(() => setStage(2), 5000)]
    return () => timers.forEach(clearTimeout)
  }, [])
  if (!stage) return html`<div aria-busy="true"></div>`
  return html`<div aria-busy="true">
    <span class="sr" role="status">Loading ${what}</span>
    ${stage === 2 && html`<p class="muted">Still waiting for ${what}.</p>`}
    <ul class="bones" aria-hidden="true">
      ${Array.from({ length: rows }, (_, at) => html`<li><span class="bone a"></span><span class=${`bone b${at % 3}`}></span><span class="bone c"></span></li>`)}
    </ul>
  </div>`
}

export const Problem = ({ error, retry }) => html`<${Note}
  kind="bad"
  icon="failed"
  alert
  end=${retry && html`<button class="btn" onClick=${retry}>Try now</button>`}
  ><b>${capital(error.message).replace(/[^.?!]$/, "$&.")}</b>${error.hint ? html` ${capital(error.hint)}` : ""}</${Note}
>`

/** Above what is shown: that it could not be asked for again, and what of it could not be read. A server that is gone
 * has a banner of its own. */
export const LeftOut = ({ error, retry, problems = [] }) => (error?.status || problems.length > 0) && html`<div class="banners">
  ${error?.status && html`<${Problem} error=${{ message: `${error.message.replace(/\.$/, "")}: what is shown is as it was.`, hint: error.hint }} retry=${retry} />`}
  ${problems.map((text) => html`<${Note} kind="warn" icon="warning" key=${text}>${capital(text)}</${Note}>`)}
</div>`

/** Loads and loads again: {data, error, reload}. Old data stays while new is asked for, unless for other inputs. */
export function useLoad(ask, inputs) {
  const [state, setState] = useState({ data: null, error: null, of: null })
  const turn = useRef(0)
  const wanted = useRef(null)
  const reload = useCallback(async () => {
    if (wanted.current !== reload) return // a timer of what was shown before: its answer would hide that of what is shown now
    const mine = ++turn.current
    try {
      const data = await ask()
      if (mine === turn.current) setState({ data, error: null, of: reload })
    } catch (error) {
      if (!(error instanceof ApiError)) throw error
      if (mine === turn.current) setState((before) => ({ data: before.of === reload ? before.data : null, error, of: reload }))
    }
  }, inputs)
  wanted.current = reload
  useEffect(() => {
    reload()
    return () => {
      turn.current += 1
    }
  }, [reload])
  // What was asked with other inputs is not shown with these, not even until the effect runs.
  return state.of === reload ? { data: state.data, error: state.error, reload } : { data: null, error: null, reload }
}

/** Calls `tick` every so often while the page is looked at. */
export function useTick(tick, every_ms, enabled = true) {
  useEffect(() => {
    if (!enabled) return undefined
    const timer = setInterval(() => document.visibilityState === "visible" && tick(), every_ms)
    return () => clearInterval(timer)
  }, [tick, every_ms, enabled])
}

/** The width of an element, followed. */
export function useWidth(start = 0) {
  const element = useRef(null)
  const [width, setWidth] = useState(start)
  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)))
    if (element.current) {
      setWidth(Math.floor(element.current.clientWidth))
      observer.observe(element.current)
    }
    return () => observer.disconnect()
  }, [])
  return [element, width]
}

// --- toasts: they answer the reader's own deeds
const TOAST_MS = 6000
let toasts = []
let drawToasts = () => {}
let number = 0
export function toast(text, { icon = "info", kind = "", link } = {}) {
  const entry = { text, icon, kind, link, number: ++number }
  toasts = [...toasts.slice(-2), entry]
  drawToasts(toasts)
  const away = () => {
    if (document.querySelector(`#toast-${entry.number}:is(:hover, :focus-within)`)) return setTimeout(away, TOAST_MS)
    return drop(entry)
  }
  setTimeout(away, TOAST_MS)
}
const drop = (entry) => {
  toasts = toasts.filter((other) => other !== entry)
  drawToasts(toasts)
}

export function Toasts() {
  const [list, setList] = useState(toasts)
  drawToasts = setList
  return html`<div class="toasts">
    ${list.map(
      (entry) => html`<div class="toast" role=${entry.kind === "bad" ? "alert" : "status"} id=${`toast-${entry.number}`} key=${entry.number}>
        <span class=${entry.kind}><${Icon} name=${entry.icon} /></span><span>${entry.text}</span>
        ${entry.link && html`<a class="btn" href=${entry.link}>Show</a>`}
        <button class="btn plain icon" aria-label="Close" onClick=${() => drop(entry)}><${Icon} name="close" /></button>
      </div>`,
    )}
  </div>`
}
export const complain = (error) => toast([error.message, error.hint].filter(Boolean).join(" "), { icon: "failed", kind: "bad" })

/** A modal dialog; closing it by Escape or the backdrop is `onClose`. The focus goes back to where it was. */
export function Dialog({ title, onClose, children, acts, wide }) {
  const element = useRef(null)
  // Before the page is drawn: keys that are pressed right after the one that opened it are its own.
  useLayoutEffect(() => {
    const before = document.activeElement
    element.current.showModal()
    element.current.querySelector("[data-focus]")?.focus()
    return () => before?.focus?.()
  }, [])
  // Escape would close it at once and tell us a moment later: a key pressed between the two would be lost.
  const cancel = (event) => {
    event.preventDefault()
    onClose()
  }
  return html`<dialog
    ref=${element}
    class=${wide ? "wide" : ""}
    aria-labelledby="dialog-title"
    onCancel=${cancel}
    onClose=${onClose}
    onClick=${(event) => event.target === element.current && onClose()}
  >
    <div class="dialog-body">
      <h2 id="dialog-title">${title}</h2>
      ${children}
      ${acts && html`<div class="acts">${acts}</div>`}
    </div>
  </dialog>`
}
