// One run: what it does and why, its phases, curves, ranks, post-mortem, log; attempts, checkpoints and commands beside.
import { ask, isEnded } from "../lib/actions.js"
import { get, runPath } from "../lib/api.js"
import { bytes, capital, clock, count, hours, money, now, plural, seconds, span, utc, value } from "../lib/format.js"
import { html, useCallback, useEffect, useRef, useState } from "../lib/html.js"
import { useKeys } from "../lib/keys.js"
import { Card, Command, Icon, Loading, Note, Phase, Problem, copy, toast, useLoad, useTick } from "../lib/parts.js"
import { href } from "../lib/router.js"
import { checkpointName, gpuHours, isAboutTheList, needsAttention, ownLabels, paramsOf, underPhase } from "../lib/rows.js"
import { clusterTitle, gpuHour, placed, run as rowOf, store, useRunChanges, useStore } from "../lib/store.js"
import { Curves } from "./run_curves.js"
import { Log } from "./run_log.js"
import { Phases } from "./run_phases.js"

const REFRESH_MS = 1000 // a run that changes all the time is asked for once a second

/** The one sentence: the first line of explain, or the first finding, or what it measures. */
function lead(row, explain) {
  if (["pending", "recovering", "starting"].includes(row.phase)) return row.reason || explain?.headline || ""
  if (row.phase === "failed") return explain?.headline || row.reason || ""
  if (needsAttention(row)) return row.findings[0]
  if (row.phase === "stopped") return row.reason || "It was stopped."
  const measured = Object.entries(row.metrics || {}).slice(0, 4).map(([name, given]) => `${name} ${value(given)}`)
  return measured.length ? `At step ${count(row.step)}: ${measured.join(", ")}.` : ""
}

function Head({ data, row }) {
  const { may, commands, explain } = data
  const soft = [underPhase(row), row.step !== undefined && `step ${count(row.step)}`, row.steps_per_s && row.phase === "running" && `${value(row.steps_per_s)} steps/s`].filter(Boolean).join(", ")
  const labels = ownLabels(row)
  const params = paramsOf(row)
  const sentence = capital(lead(row, explain))
  return html`<nav aria-label="Where you are">
      <ol class="crumbs">
        <li><a href="#/runs">Runs</a></li>
        <li><a href=${href(["runs"], { place: row.cluster })}>${clusterTitle(row.cluster)}</a></li>
        ${row.sweep && html`<li><a href=${href(["sweep", row.cluster, row.sweep])}>${row.sweep}</a></li>`}
      </ol>
    </nav>
    <header class="run-head">
      <div class="title"><h1>${row.name}</h1><${Phase} phase=${row.phase} big /><span class="soft">${soft}</span></div>
      <div class="acts">
        <button class="btn" onClick=${() => copy(commands.reproduce)}><${Icon} name="copy" />Copy command</button>
        ${may.retry && html`<button class="btn" aria-haspopup="dialog" onClick=${() => ask("retry", [row])}>Run again</button>`}
        ${may.resume && html`<button class="btn" aria-haspopup="dialog" onClick=${() => ask("resume", [row])}>Resume${row.checkpoint ? ` from ${checkpointName(row)}` : ""}</button>`}
        ${may.stop && html`<button class="btn" aria-haspopup="dialog" onClick=${() => ask("stop", [row])}>Stop<kbd>s</kbd></button>`}
        ${may.remove && html`<button class="btn" aria-haspopup="dialog" onClick=${() => ask("remove", [row])}>Remove</button>`}
      </div>
      ${sentence && html`<p class="lead">${sentence}</p>`}
      <ul class="keyline">
        ${row.owner && html`<li>${row.owner}</li>`}
        <li>${plural(row.nodes || 1, "node")}${row.gpus ? `, ${plural(row.gpus, "GPU")}` : ""}</li>
        ${data.status.ranks?.length > 0 && html`<li>${plural(data.status.ranks.length, "rank")}</li>`}
        ${data.status.spec?.framework && data.status.spec.framework !== "none" && html`<li>${data.status.spec.framework}</li>`}
        ${row.started && html`<li title=${utc(row.started)}>started ${clock(row.started)}</li>`}
        ${gpuHours(row) > 0 && html`<li>${hours(gpuHours(row))} GPU-h${gpuHour(row.cluster) ? `, ${money(gpuHours(row) * gpuHour(row.cluster))}` : ""}</li>`}
        ${params.length > 0 && html`<li>${params.join(", ")}</li>`}
        ${labels.length > 0 && html`<li>${labels.join(", ")}</li>`}
      </ul>
    </header>`
}

/** Why it failed or waits: explain as it is printed, without what the sentence above says already. */
function Why({ explain, row, status }) {
  const said = lead(row, explain)
  const facts = (explain?.facts || []).filter((fact) => fact.split(": ")[0] !== said.split(": ")[0])
  const steps = (explain?.next_steps || []).filter((step) => row.phase !== "pending" || !isAboutTheList(step))
  if (!facts.length && !explain?.lines?.length && !steps.length) return null
  const headline = explain.headline === said || explain.headline.endsWith(`: ${said}`) || (said && facts.length < (explain.facts?.length || 0)) ? "" : explain.headline
  const failed = row.phase === "failed"
  const title = failed ? "Why it failed" : row.phase === "pending" ? "Why it waits" : row.phase === "succeeded" ? "What is to be said" : "Why"
  const last = [...(status.attempts || [])].reverse().find((attempt) => attempt.failure)
  const sub = failed && last ? [last.ended && clock(last.ended, { exact: true }), last.failure.rank?.step != null && `step ${count(last.failure.rank.step)}`].filter(Boolean).join(", ") : ""
  return html`<${Card} id="why" className="post" title=${title} sub=${sub} lead=${failed && html`<span class="bad"><${Icon} name="failed" /></span>`}>
    <div class="body">
      ${headline && html`<p class="why">${capital(headline)}</p>`}
      ${facts.length > 0 && html`<ul class="keyline facts-line">${facts.map((fact) => html`<li>${capital(fact)}</li>`)}</ul>`}
      <div class=${`cells${explain.lines?.length && steps.length ? "" : " one"}`}>
        ${explain.lines?.length > 0 && html`<pre class="stacktrace" tabindex="0" role="region" aria-label="Last lines of what failed">${explain.lines.join("\n")}</pre>`}
        ${steps.length > 0 && html`<div><h3>${row.phase === "pending" ? "What would let it in" : "Next"}</h3>
          <ol class="steps">${steps.map((step) => html`<li><span>${step.startsWith("longboat ") ? html`<code>${placed(row.cluster, step)}</code>` : capital(step)}</span></li>`)}</ol></div>`}
      </div>
    </div>
  </${Card}>`
}

const Attempts = ({ status, row }) => html`<${Card} id="attempts" title="Attempts" sub=${row.retries ? `${row.attempt || 0} of ${row.retries + 1}` : ""}>
  <ol class="list">
    ${[...status.attempts].reverse().map((attempt) => {
      const phase = attempt.failure ? "failed" : attempt.ended ? (row.phase === "stopped" ? "stopped" : "succeeded") : row.phase
      const told = [attempt.resumed_from && `from ${attempt.resumed_from}`, attempt.failure && (attempt.failure.rank ? `rank ${attempt.failure.rank.rank}, ${attempt.failure.cause}` : attempt.failure.cause)].filter(Boolean).join("; ")
      return html`<li><div><${Phase} phase=${phase} word=${`attempt ${attempt.number}`} /><small>${told}</small></div><span class="end" title=${utc(attempt.started)}>${span((seconds(attempt.ended) ?? now()) - seconds(attempt.started))}</span></li>`
    })}
  </ol>
</${Card}>`

function Checkpoints({ cluster, id, newest, enabled }) {
  const { data } = useLoad(() => (enabled ? get(`${runPath(cluster, id)}/checkpoints`) : Promise.resolve(null)), [cluster, id, newest])
  const list = data?.checkpoints || []
  if (!list.length) return null
  return html`<${Card} id="checkpoints" title="Checkpoints" sub=${list.length > 6 ? `the newest 6 of ${list.length}` : ""}>
    <ol class="list">
      ${[...list].sort((a, b) => b.step - a.step).slice(0, 6).map(
        (entry) => html`<li>
          <div>${entry.name} ${entry.promoted && html`<span class="tag ok">kept</span>`}<small>${[bytes(entry.size), entry.complete ? "complete" : entry.note || "not complete", entry.newest && "the newest"].filter(Boolean).join(", ")}</small></div>
          <span class="end" title=${utc(entry.time)}>${entry.time ? clock(entry.time) : ""}</span>
        </li>`,
      )}
    </ol>
    ${data.where && html`<div class="body foot"><p class="muted wrap">${data.where}</p></div>`}
  </${Card}>`
}

function Facts({ status }) {
  const spec = status.spec || {}
  const role = spec.roles?.[0] || {}
  const facts = [
    ["Image", role.image],
    ["Framework", spec.framework !== "none" && spec.framework],
    ["Queue", spec.queue],
    ["Priority", status.priority || null],
    ["Retries", status.retries ? `${Math.max(0, status.retries + 1 - (status.attempt || 0))} of ${status.retries} left` : null],
    ["Timeout", spec.timeout_s && span(spec.timeout_s)],
    ["Exit code", status.exit_code ?? null],
    ["Disk", status.disk ? bytes(status.disk) : null],
    ["Folder", status.directory],
  ].filter(([, given]) => given !== null && given !== undefined && given !== "" && given !== false)
  if (!facts.length) return null
  return html`<${Card} id="facts" title="Facts"><div class="body"><dl class="facts">${facts.map(([name, given]) => html`<dt>${name}</dt><dd>${given}</dd>`)}</dl></div></${Card}>`
}

const Commands = ({ commands, yaml }) => html`<${Card} id="reproduce" title="Reproduce">
  <div class="body stack tight">
    ${["reproduce", "explain", "logs"].filter((name) => commands[name]).map((name) => html`<${Command} key=${name} text=${commands[name]} />`)}
    ${yaml && html`<details><summary>Job file</summary><pre class="stacktrace yaml" tabindex="0" role="region" aria-label="Job file">${yaml}</pre><button class="btn" onClick=${() => copy(yaml, "Job file")}>Copy job file</button></details>`}
  </div>
</${Card}>`

export default function Run({ route }) {
  const [, cluster, id] = route.parts
  useStore()
  const name = `${cluster}/${id}`
  const { data, error, reload } = useLoad(() => get(runPath(cluster, id)), [cluster, id])
  const timer = useRef(0)
  const [held, setHeld] = useState(false)
  const changed = useCallback(() => {
    if (held) return
    timer.current ||= setTimeout(() => {
      timer.current = 0
      reload()
    }, REFRESH_MS)
  }, [reload, held])
  useEffect(() => () => clearTimeout(timer.current), [])
  useRunChanges(name, changed)
  const row = { ...(data?.row || {}), ...((!held && rowOf(cluster, id)) || {}) }
  const ended = data ? isEnded(row) : false
  useTick(changed, 10000, Boolean(data) && !ended && !held)
  const hold = () => {
    if (held) reload()
    setHeld(!held)
  }
  const show = route.query.get("show")
  useEffect(() => {
    if (data && show) document.getElementById(show)?.scrollIntoView()
  }, [Boolean(data), show])
  useKeys("One run", [
    { keys: ["e"], label: "explain", hint: "explain", run: () => document.getElementById("why")?.scrollIntoView() },
    { keys: ["l"], label: "log", run: () => document.getElementById("log")?.scrollIntoView() },
    { keys: ["s"], label: "stop, asks first", hint: data?.may.stop && "stop", run: () => (data?.may.stop ? ask("stop", [row]) : toast(store.me?.readonly ? "This dashboard is read-only" : `${id} cannot be stopped now`)) },
    { keys: ["c"], label: "copy command", run: () => data && copy(data.commands.reproduce) },
    { keys: ["p"], label: "hold updates, and go on", hint: !ended && (held ? "go on" : "hold"), run: hold },
    { keys: ["z"], label: "reset zoom of charts", run: () => dispatchEvent(new Event("zoomreset")) },
  ])
  if (!data) {
    if (!error) return html`<${Loading} what=${id} rows=${6} />`
    if (error.status === 404) return html`<div class="card"><div class="empty"><h1>There is no run ${id} on ${clusterTitle(cluster)}</h1><p class="soft">It was removed, or the address is not right.</p><p><a href="#/runs">All runs</a></p></div></div>`
    return html`<${Problem} error=${error} retry=${reload} />`
  }
  const { status, explain } = data
  const why = html`<${Why} explain=${explain} row=${row} status=${status} />`
  const first = row.phase === "failed" || row.phase === "pending"
  const started = Boolean(row.started) || (status.ranks || []).some((rank) => rank.alive)
  return html`<${Head} data=${data} row=${row} />
    ${held && html`<div class="banners"><${Note} icon="keep"><b>What is shown is held.</b> The run goes on. <button class="btn" onClick=${hold}>Go on</button></${Note}></div>`}
    ${error && html`<div class="banners"><${Problem} error=${error} retry=${reload} /></div>`}
    <div class="cols">
      <div class="stack">
        ${first && why}
        <${Phases} timeline=${status.timeline} />
        ${started && html`<${Curves} cluster=${cluster} id=${id} ended=${ended || held} said=${row.findings} />`}
        ${!first && why}
        ${(started || row.phase !== "pending") && html`<${Log} key=${name} cluster=${cluster} id=${id} status=${status} ended=${ended} query=${route.query} />`}
      </div>
      <aside class="stack" aria-label="Details">
        ${status.attempts?.length > 0 && html`<${Attempts} status=${status} row=${row} />`}
        <${Checkpoints} cluster=${cluster} id=${id} newest=${row.checkpoint} enabled=${started} />
        <${Commands} commands=${data.commands} yaml=${data.job_yaml} />
        <${Facts} status=${status} />
      </aside>
    </div>`
}
