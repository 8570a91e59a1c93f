// Stop, retry, resume and remove: each is asked first, with what it costs.
import { get, post, runPath } from "./api.js"
import { count, hours, money, plural, span } from "./format.js"
import { html, useState } from "./html.js"
import { Dialog, complain, toast, useLoad } from "./parts.js"
import { go, runHref } from "./router.js"
import { checkpointName, length } from "./rows.js"
import { gpuHour, placed, put, store } from "./store.js"

let draw = () => {}
export const ask = (action, rows) => draw({ action, rows })
export const ENDED = ["succeeded", "failed", "stopped"]
export const isEnded = (row) => ENDED.includes(row.phase)
const isOthers = (row) => Boolean(store.me?.user && row.owner && row.owner !== store.me.user)

/** Stop, one after the other; a toast for each refusal, one for all that went well. */
async function stop(rows) {
  const done = []
  for (const row of rows) {
    try {
      const answer = await post(`${runPath(row.cluster, row.id)}/stop`)
      if (answer.run) put(answer.run)
      done.push(row.name)
    } catch (error) {
      complain(error)
    }
  }
  if (done.length) toast(`${done.join(", ")} ${done.length === 1 ? "is" : "are"} being stopped`, { icon: "stopped", kind: "accent" })
}

async function remove(rows, purge) {
  const done = []
  for (const row of rows) {
    try {
      await post(`${runPath(row.cluster, row.id)}/remove`, { purge })
      done.push(row.name)
    } catch (error) {
      complain(error)
    }
  }
  if (done.length) {
    toast(`${done.join(", ")} removed`, { icon: "succeeded", kind: "ok" })
    if (location.hash.startsWith("#/run/")) go("#/runs")
  }
}

async function again(row, how) {
  try {
    const made = await post(`${runPath(row.cluster, row.id)}/${how}`)
    toast(`${made.id} is submitted`, { icon: "succeeded", kind: "ok", link: runHref(made) })
  } catch (error) {
    complain(error)
  }
}

const named = (rows) => (rows.length === 1 ? rows[0].name : `${rows.length} runs`)

/** What would be done again. */
function Loss({ row }) {
  const step = row.checkpoint?.match(/(\d+)(?!.*\d)/)?.[1]
  const price = (gpuHour(row.cluster) || 0) * (row.gpus || 0)
  const worth = (s) => (price && s > 0 ? `, about ${money((price * s) / 3600)},` : "")
  if (!row.checkpoint) {
    if (row.step === undefined || row.step === null) return ""
    return html` It has no checkpoint: ${row.started ? `${span(length(row))} of work${worth(length(row))}` : "its work"} would be done again.`
  }
  const lost = step !== undefined && row.step !== undefined ? row.step - Number(step) : null
  return html` Its newest complete checkpoint is ${checkpointName(row)}${lost > 0 ? `: ${count(lost)} steps${row.steps_per_s ? worth(lost / row.steps_per_s) : ""} would be done again` : ""}.`
}

function StopDialog({ rows, close }) {
  const others = rows.filter(isOthers)
  const [typed, setTyped] = useState("")
  const word = rows.length === 1 ? rows[0].name : `${rows.length} runs`
  const ready = !others.length || typed === word
  const act = () => {
    close()
    stop(rows)
  }
  const gpus = rows.reduce((sum, row) => sum + (row.gpus || 0), 0)
  const [listed] = rows
  // One run as it is now: its row in the list may be a moment old.
  const { data } = useLoad(() => (rows.length === 1 ? get(runPath(listed.cluster, listed.id)) : Promise.resolve(null)), [listed.cluster, listed.id, rows.length])
  const row = data?.row
  const acts = html`<button class="btn" data-focus onClick=${close}>Cancel</button>
    <button class="btn danger" disabled=${!ready} onClick=${act}>${rows.length === 1 ? "Stop now" : `Stop ${rows.length} runs`}</button>`
  return html`<${Dialog} title=${`Stop ${named(rows)}?`} onClose=${close} acts=${acts}>
    <p class="soft">
      ${rows.length > 1 ? `${rows.map((row) => row.name).join(", ")}. ` : ""}The ranks get SIGTERM and their time to end.${gpus ? ` ${count(gpus)} GPUs become free.` : ""}
      ${row && html`<${Loss} row=${row} />`}
    </p>
    <p class="soft gap">Checkpoints and logs stay.${row?.checkpoint ? html` Later: <code>${placed(row.cluster, `longboat run --resume ${row.name}`)}</code>` : ""}</p>
    ${others.length > 0 && html`<${Typed} word=${word} typed=${typed} set=${setTyped} why=${`${others.map((row) => row.owner).join(", ")} started it.`} />`}
  </${Dialog}>`
}

function StopSweepDialog({ rows: [sweep], close }) {
  const [typed, setTyped] = useState("")
  const others = isOthers({ owner: sweep.user })
  const running = sweep.trials.filter((trial) => !trial.ended).length
  const never = Math.max(0, (sweep.planned || 0) - sweep.trials.length)
  const act = async () => {
    close()
    try {
      await post(`sweeps/${encodeURIComponent(sweep.cluster)}/${encodeURIComponent(sweep.name)}/stop`)
      toast(`${sweep.name} is being stopped`, { icon: "stopped", kind: "accent" })
    } catch (error) {
      complain(error)
    }
  }
  const acts = html`<button class="btn" data-focus onClick=${close}>Cancel</button>
    <button class="btn danger" disabled=${others && typed !== sweep.name} onClick=${act}>Stop the sweep</button>`
  return html`<${Dialog} title=${`Stop ${sweep.name}?`} onClose=${close} acts=${acts}>
    <p class="soft">${running ? `${plural(running, "trial")} under way get SIGTERM and their time to end.` : "No trial is under way."}${never ? ` ${plural(never, "trial")} will never start.` : ""}</p>
    <p class="soft gap">What the others have shown stays. A sweep that was stopped does not go on.</p>
    ${others && html`<${Typed} word=${sweep.name} typed=${typed} set=${setTyped} why=${`${sweep.user} started it.`} />`}
  </${Dialog}>`
}

const Typed = ({ word, typed, set, why }) => html`<p class="gap"><label for="typed">${why} Type <b>${word}</b></label></p>
  <span class="field typed"><input id="typed" value=${typed} autocomplete="off" onInput=${(event) => set(event.target.value)} /></span>`

function RemoveDialog({ rows, close }) {
  const [purge, setPurge] = useState(false)
  const [typed, setTyped] = useState("")
  const word = named(rows)
  const ready = !purge || typed === word
  const act = () => {
    close()
    remove(rows, purge)
  }
  const acts = html`<button class="btn" data-focus onClick=${close}>Cancel</button>
    <button class="btn danger" disabled=${!ready} onClick=${act}>${purge ? "Remove with checkpoints" : "Remove"}</button>`
  return html`<${Dialog} title=${`Remove ${word}?`} onClose=${close} acts=${acts}>
    <p class="soft">Its record, log and artifacts go${rows[0].gpu_hours ? `: ${hours(rows[0].gpu_hours)} GPU-h of work` : ""}. This cannot be undone. Checkpoints stay unless you say so.</p>
    <p class="gap"><label class="check"><input type="checkbox" checked=${purge} onChange=${(event) => setPurge(event.target.checked)} />Also remove its checkpoints</label></p>
    ${purge && html`<${Typed} word=${word} typed=${typed} set=${setTyped} why="" />`}
  </${Dialog}>`
}

/** A new run takes machines, and a key is pressed quickly. */
function AgainDialog({ action, rows: [row], close }) {
  const price = (gpuHour(row.cluster) || 0) * (row.gpus || 0)
  const resumes = action === "resume"
  const act = () => {
    close()
    again(row, action)
  }
  const acts = html`<button class="btn" data-focus onClick=${close}>Cancel</button>
    <button class="btn primary" onClick=${act}>${resumes ? "Resume" : "Run again"}</button>`
  return html`<${Dialog} title=${resumes ? `Resume ${row.name}?` : `Run ${row.name} again?`} onClose=${close} acts=${acts}>
    <p class="soft">A new run of the same job and code${resumes ? ` begins with ${checkpointName(row)}` : ""}: ${plural(row.nodes || 1, "node")}${row.gpus ? `, ${plural(row.gpus, "GPU")}` : ""}${price ? `, about ${money(price)} an hour` : ""}.</p>
  </${Dialog}>`
}

export function Actions() {
  const [asked, setAsked] = useState(null)
  draw = setAsked
  if (!asked || !asked.rows.length) return null
  const close = () => setAsked(null)
  const Kind = { stop: StopDialog, remove: RemoveDialog, stopSweep: StopSweepDialog, retry: AgainDialog, resume: AgainDialog }[asked.action]
  return html`<${Kind} action=${asked.action} rows=${asked.rows} close=${close} />`
}
