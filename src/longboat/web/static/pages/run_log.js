// The log of a run: a virtual list of lines of one height, live at its end, searched by the server.
import { get, runPath, search } from "../lib/api.js"
import { bytes, count, logClock } from "../lib/format.js"
import { html, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../lib/html.js"
import { useKeys } from "../lib/keys.js"
import { Card, Icon, Select, complain } from "../lib/parts.js"
import { setQuery } from "../lib/router.js"
import { firstFailure, highlight, level, merge, plain, sameLine } from "./log_lines.js"

const LINE_PX = 20
const HELD = 5000 // lines kept in the page; earlier ones come back on scrolling up
const PAGE = 500 // lines at a time: many screens, and less than a tenth of a second
const SEARCH_MS = 250
const HITS = 1000

function Line({ line, top, hit, first, words }) {
  if (line.sep) return html`<div class="line sep" style=${{ top: `${top}px` }}>${line.sep}</div>`
  const mark = level(line)
  return html`<div class=${`line ${mark ? mark.toLowerCase() : ""}${first ? " first" : ""}${hit ? " hit" : ""}`} style=${{ top: `${top}px` }}>
    <span class="ts">${logClock(line.time)}</span><span class="who" title=${`attempt ${line.attempt}, ${line.stream}`}>${line.node}/${line.rank}</span><span class="lv">${mark}</span>
    <span class="msg">${highlight(plain(line.text), words)}${line.cut ? html`<span class="muted"> ${bytes(line.cut)} left out</span>` : ""}</span>
  </div>`
}

/** Where the lines stand between attempts, a line says so. */
function withSeparators(lines) {
  const shown = []
  let attempt = null
  for (const line of lines) {
    if (attempt !== null && line.attempt !== attempt) shown.push({ sep: `attempt ${attempt} ended, attempt ${line.attempt} began` })
    attempt = line.attempt
    shown.push(line)
  }
  return shown
}

/** The lines that are held: the end of the log and what comes, or those around a hit. */
function useLines({ cluster, id, rank, attempt, ended }) {
  const [state, setState] = useState({ lines: [], more: false, loading: true, live: true, until: null, depth: 0 })
  const path = `${runPath(cluster, id)}/logs`
  const ask = useCallback((extra) => get(`${path}?${search({ rank, attempt, ...extra })}`), [path, rank, attempt])
  const source = useRef(null)
  const toEnd = useCallback(async () => {
    source.current?.close()
    const mine = {}
    source.current = { close: () => { mine.closed = true } }
    try {
      const answer = await ask({ from: 0, to: PAGE })
      if (mine.closed) return
      setState({ lines: answer.lines, more: answer.more, loading: false, live: true, until: answer.until, depth: answer.to })
      if (ended) return
      const stream = new EventSource(`api/${path}/stream?${search({ rank, attempt, tail: PAGE })}`)
      source.current = stream
      stream.addEventListener("lines", (event) => {
        const fresh = JSON.parse(event.data).lines
        setState((before) => ({ ...before, lines: merge(before.lines, fresh).slice(-HELD) }))
      })
      stream.addEventListener("end", () => stream.close())
    } catch (error) {
      if (!mine.closed) setState((before) => ({ ...before, loading: false, error }))
    }
  }, [ask, ended])
  useEffect(() => {
    toEnd()
    return () => source.current?.close()
  }, [toEnd])
  const older = async () => {
    if (state.loading || !state.more || state.lines.length >= HELD) return
    setState((before) => ({ ...before, loading: true }))
    try {
      const answer = await ask({ from: state.depth, to: state.depth + PAGE, until: state.until })
      setState((before) => ({ ...before, loading: false, more: answer.more, depth: answer.to, lines: merge(answer.lines, before.lines) }))
    } catch (error) {
      setState((before) => ({ ...before, loading: false }))
      complain(error)
    }
  }
  /** The lines around a moment; following ends. */
  const around = async (time) => {
    source.current?.close()
    const until = new Date(Date.parse(time) + 5000).toISOString()
    let answer = await ask({ from: 0, to: PAGE, until })
    if (!answer.lines.some((line) => line.time <= time)) answer = await ask({ from: 0, to: PAGE, until: time })
    setState({ lines: answer.lines, more: answer.more, loading: false, live: false, until: answer.until, depth: answer.to })
    return answer.lines
  }
  return { ...state, older, around, toEnd, ask }
}

export function Log({ cluster, id, status, ended, query }) {
  const rank = query.get("rank") || ""
  const attempt = query.get("attempt") || ""
  const [text, setText] = useState(query.get("find") || "")
  const ranks = status.ranks || []
  const log = useLines({ cluster, id, rank, attempt, ended })
  const shown = useMemo(() => withSeparators(log.lines), [log.lines])
  const view = useRef(null)
  const [scroll, setScroll] = useState({ top: 0, height: 340 })
  const [follow, setFollow] = useState(true)
  const [hits, setHits] = useState(null)
  const [target, setTarget] = useState(null)
  const jump = useRef(false) // the target is scrolled to once, not again with every line that comes
  const failure = useMemo(() => firstFailure(status), [status])

  useEffect(() => {
    if (!text) {
      setHits(null)
      return undefined
    }
    const timer = setTimeout(async () => {
      try {
        const answer = await log.ask({ from: 0, to: HITS, grep: text, ignore_case: "true" })
        setHits({ lines: answer.lines, at: answer.lines.length - 1, more: answer.more })
        if (answer.lines.length) show(answer.lines[answer.lines.length - 1])
      } catch (error) {
        complain(error)
      }
    }, SEARCH_MS)
    return () => clearTimeout(timer)
  }, [text, rank, attempt])

  const held = useRef(shown) // what is held now, also for what was asked some lines ago
  held.current = shown
  const at = (line) => held.current.findIndex((other) => !other.sep && sameLine(other, line))
  const show = async (line, first = false) => {
    setFollow(false)
    jump.current = true
    setTarget({ line, first })
    if (at(line) < 0) await log.around(line.time)
  }
  const turn = (by) => {
    if (!hits?.lines.length) return
    const next = (hits.at + by + hits.lines.length) % hits.lines.length
    setHits({ ...hits, at: next })
    show(hits.lines[next])
  }
  const toFailure = async () => {
    if (!failure) return
    const { lines } = await log.ask({ from: 0, to: 200, until: failure.time, rank: failure.rank, attempt: failure.attempt })
    const found = lines.filter((line) => failure.message && line.text.includes(failure.message.slice(0, 60)))
    const line = found[found.length - 1] || lines[lines.length - 1]
    if (line) show(line, true)
    view.current?.scrollIntoView({ block: "center" })
  }
  const end = () => {
    setFollow(true)
    setTarget(null)
    if (!log.live) log.toEnd()
  }
  useLayoutEffect(() => {
    const box = view.current
    if (!box) return
    const index = target && jump.current ? at(target.line) : -1
    if (index >= 0) {
      jump.current = false
      box.scrollTop = Math.max(0, index * LINE_PX - box.clientHeight / 2)
    } else if (follow) box.scrollTop = box.scrollHeight
  }, [shown, follow, target])
  // lines that came in above must not move what is read
  const height = useRef(0)
  useLayoutEffect(() => {
    const box = view.current
    const grown = box.scrollHeight - height.current
    if (!follow && !target && height.current && box.scrollTop < LINE_PX * 2 && grown > 0 && log.depth > PAGE) box.scrollTop += grown
    height.current = box.scrollHeight
  }, [log.depth])
  const onScroll = (event) => {
    const box = event.currentTarget
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < LINE_PX
    if (!atEnd && follow && box.scrollTop < scroll.top) setFollow(false) // the first scroll up ends following
    setScroll({ top: box.scrollTop, height: box.clientHeight })
    if (box.scrollTop < LINE_PX * 4) log.older()
  }
  const names = ["", ...ranks.map((entry) => String(entry.rank))]
  useKeys("Log", [
    { keys: ["f"], label: "first failure", hint: failure && "first failure", run: toFailure },
    { keys: ["n", "N"], label: "next, previous hit", run: (pressed) => turn(pressed === "n" ? 1 : -1) },
    { keys: ["[", "]"], label: "previous, next rank", hint: "rank", run: (pressed) => setQuery({ rank: names[(names.indexOf(rank) + (pressed === "]" ? 1 : names.length - 1)) % names.length] }) },
    { keys: ["a"], label: "attempt", run: () => setQuery({ attempt: attempt ? (Number(attempt) % (status.attempts?.length || 1)) + 1 : 1 }) },
    { keys: ["G"], label: "end of log, follow", hint: "end of log", run: end },
  ])
  const from = Math.max(0, Math.floor(scroll.top / LINE_PX) - 20)
  const to = Math.min(shown.length, Math.ceil((scroll.top + scroll.height) / LINE_PX) + 20)
  const rankOptions = [["", "All ranks"], ...ranks.map((entry) => [String(entry.rank), `Rank ${entry.rank}${failure?.rank === entry.rank ? " (failed first)" : ""}`])]
  const tools = html`<label class="field find"><${Icon} name="search" /><span class="sr">Search the log</span
      ><input type="search" aria-keyshortcuts="/" placeholder="Search the log" value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${(event) => event.key === "Enter" && turn(event.shiftKey ? 1 : -1)} />
      <span class="muted" role="status">${hits ? (hits.lines.length ? `${hits.at + 1}/${count(hits.lines.length)}${hits.more ? "+" : ""}` : "no hit") : ""}</span></label>
    <${Select} label="Ranks" chosen=${rank} options=${rankOptions} onChoose=${(given) => setQuery({ rank: given })} />
    <${Select} label="Attempt" chosen=${attempt} options=${[["", "All attempts"], ...(status.attempts || []).map((entry) => [String(entry.number), `Attempt ${entry.number}`])]} onChoose=${(given) => setQuery({ attempt: given })} />
    <button class="btn" disabled=${!failure} onClick=${toFailure}>First failure<kbd>f</kbd></button>
    <button class="btn" aria-pressed=${String(follow)} onClick=${() => (follow ? setFollow(false) : end())}><${Icon} name="down" />Follow</button>`
  return html`<${Card} id="log" title="Log" end=${tools} className="log-card">
    <div class="log" tabindex="0" role="log" aria-live="off" aria-label=${rank === "" ? "Log of all ranks" : `Log of rank ${rank}`} ref=${view} onScroll=${onScroll}>
      ${!shown.length && html`<p class="none muted">${log.loading ? "Loading the log." : log.error ? log.error.message : "Nothing was printed yet."}</p>`}
      <div class="lines" style=${{ height: `${shown.length * LINE_PX}px` }}>
        ${shown.slice(from, to).map((line, index) => {
          const hit = target && !line.sep && sameLine(line, target.line)
          return html`<${Line} key=${from + index} line=${line} top=${(from + index) * LINE_PX} hit=${hit} first=${hit && target.first} words=${text} />`
        })}
      </div>
    </div>
    ${!log.live && html`<p class="log-foot muted">These lines are from the middle of the log. <button class="btn plain" onClick=${end}>To its end<kbd>G</kbd></button></p>`}
  </${Card}>`
}
