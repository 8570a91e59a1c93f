// Parallel coordinates: one axis for each parameter and the metric, one line for each trial; a drag on an axis selects.
import { value } from "../lib/format.js"
import { html, useRef, useState } from "../lib/html.js"
import { Card, Icon, useWidth } from "../lib/parts.js"
import { shownPhase } from "./sweeps.js"

const HEIGHT = 300
const TOP = 38
const BOTTOM = 268
const LOG_SPREAD = 20 // a range of positive values wider than this reads better on a logarithmic axis

/** How a value becomes a place on its axis: numbers along a scale, words in their order. `range`: as the sweep has it. */
export function axisOf(name, values, range) {
  const known = values.filter((given) => given !== null && given !== undefined)
  const numbers = known.every((given) => typeof given === "number")
  if (!numbers || !known.length) {
    const words = [...new Set(known.map(String))].sort()
    const place = (given) => (given == null ? null : words.length < 2 ? 0.5 : words.indexOf(String(given)) / (words.length - 1))
    return { name, place, ticks: words.slice(0, 8).map((word) => [place(word), word]), words, invert: null }
  }
  const declared = range && typeof range.min === "number"
  const low = declared ? range.min : Math.min(...known)
  const high = declared ? range.max : Math.max(...known)
  const log = declared ? Boolean(range.log) : low > 0 && high / low > LOG_SPREAD
  const scale = log ? Math.log : (x) => x
  const back = log ? Math.exp : (x) => x
  const place = (given) => (given == null ? null : high === low ? 0.5 : (scale(given) - scale(low)) / (scale(high) - scale(low)))
  const invert = (share) => back(scale(low) + share * (scale(high) - scale(low)))
  const distinct = [...new Set(known)].sort((a, b) => a - b)
  const ticks = distinct.length <= 6 ? distinct.map((given) => [place(given), value(given)]) : [0, 0.25, 0.5, 0.75, 1].map((share) => [share, value(declared && Number.isInteger(low) && Number.isInteger(high) && high - low > 4 ? Math.round(invert(share)) : invert(share))])
  return { name, place, ticks, words: null, invert, low, high }
}

const WORD = 18 // characters of a word beside an axis
const short = (word) => (String(word).length > WORD ? `${String(word).slice(0, WORD - 1)}\u2026` : word)
const y = (share) => BOTTOM - share * (BOTTOM - TOP)

function Axis({ axis, x, isFirst, chosen, onChoose }) {
  const [from, setFrom] = useState(null)
  const [to, setTo] = useState(null)
  const area = useRef(null)
  const share = (event) => {
    const box = area.current.getBoundingClientRect()
    return Math.max(0, Math.min(1, (box.bottom - event.clientY) / box.height))
  }
  const down = (event) => {
    if (!axis.invert) return
    area.current.setPointerCapture(event.pointerId)
    setFrom(share(event))
    setTo(share(event))
  }
  const up = () => {
    if (from === null) return
    const [low, high] = [Math.min(from, to), Math.max(from, to)]
    onChoose(high - low < 0.02 ? null : [axis.invert(low), axis.invert(high)])
    setFrom(null)
  }
  const range = from !== null ? [Math.min(from, to), Math.max(from, to)] : chosen ? chosen.map(axis.place) : null
  return html`<g>
    <text class="axis-name" x=${x} y="16" text-anchor="middle">${axis.name}</text>
    <path class="axis" d=${`M${x + 0.5} ${TOP}V${BOTTOM}`} />
    ${axis.ticks.map(([at, word]) => html`<text x=${isFirst ? x - 8 : x + 6} y=${y(at) + 4} text-anchor=${isFirst ? "end" : "start"}><title>${word}</title>${short(word)}</text>`)}
    ${range && html`<rect class="brush" x=${x - 7} width="14" y=${y(range[1])} height=${Math.max(2, y(range[0]) - y(range[1]))} />`}
    <rect ref=${area} class="grab" x=${x - 14} width="28" y=${TOP} height=${BOTTOM - TOP} onPointerDown=${down} onPointerMove=${(event) => from !== null && setTo(share(event))} onPointerUp=${up} />
  </g>`
}

export function Parallel({ trials, names, space, metric, best, chosen, onChoose }) {
  const [box, width] = useWidth(800)
  const axes = [...names.map((name) => axisOf(name, trials.map((trial) => trial.params[name]), space?.[name])), { ...axisOf(metric, trials.map((trial) => trial.metric)), key: "metric" }]
  const inner = Math.max(width, axes.length * 90)
  const left = Math.min(140, Math.max(40, 16 + 7 * Math.max(...axes[0].ticks.map(([, word]) => short(word).length ?? 0)))) // its words stand outside
  const x = (at) => left + (at * (inner - left - 70)) / Math.max(1, axes.length - 1)
  const inside = (trial) => Object.entries(chosen).every(([key, [low, high]]) => {
    const given = key === "metric" ? trial.metric : trial.params[key]
    return given != null && given >= low && given <= high
  })
  const line = (trial) => {
    let path = ""
    axes.forEach((axis, at) => {
      const share = axis.place(at === axes.length - 1 ? trial.metric : trial.params[axis.name])
      if (share === null) return
      const [px, py] = [x(at), y(share)]
      path += path ? `C${(px + x(at - 1)) / 2} ${path.match(/[\d.]+$/)[0]} ${(px + x(at - 1)) / 2} ${py.toFixed(1)} ${px} ${py.toFixed(1)}` : `M${px} ${py.toFixed(1)}`
    })
    return path
  }
  const choose = (axis) => (range) => {
    const next = { ...chosen }
    const key = axis.key || axis.name
    if (range) next[key] = range
    else delete next[key]
    onChoose(next)
  }
  const known = trials.filter((trial) => trial.params)
  const sorted = [...known].sort((a, b) => (a.trial === best?.trial) - (b.trial === best?.trial))
  const tools = Object.entries(chosen).map(([key, [low, high]]) => html`<span class="tag">${key === "metric" ? metric : key} ${value(low)} to ${value(high)}<button class="btn plain icon drop" aria-label=${`Drop the selection of ${key}`} onClick=${() => { const next = { ...chosen }; delete next[key]; onChoose(next) }}><${Icon} name="close" /></button></span>`)
  if (known.length < 2) return null
  return html`<${Card} id="parallel" title="What makes it better" sub="drag on an axis to select; the table follows" end=${tools}>
    <div class="body">
      <div class="scroll" tabindex="0" role="region" aria-label="Parallel coordinates" ref=${box}>
        <svg class="plot parallel" style=${{ "--dense": Math.max(0.08, Math.min(1, 60 / known.length)), width: `${inner}px`, height: `${HEIGHT}px` }} role="img" aria-label=${`Parallel coordinates of ${known.length} trials: ${[...names, metric].join(", ")}${best ? `. The best has ${metric} ${value(best.metric)}` : ""}`}>
          ${sorted.map((trial) => html`<path key=${trial.trial} class=${`trial ${shownPhase(trial)}${trial.trial === best?.trial ? " best" : ""}${inside(trial) ? "" : " out"}`} d=${line(trial)}><title>${trial.run || trial.trial}: ${metric} ${value(trial.metric)}</title></path>`)}
          ${axes.map((axis, at) => html`<${Axis} key=${axis.key || axis.name} axis=${axis} x=${Math.round(x(at))} isFirst=${at === 0} chosen=${chosen[axis.key || axis.name]} onChoose=${choose(axis)} />`)}
        </svg>
      </div>
      <ul class="keyline gap-above"><li><span class="sw ln best"></span>best</li><li><span class="sw ln"></span>running or ended well</li><li><span class="sw dash early"></span>stopped early</li><li><span class="sw dash failed"></span>failed</li></ul>
    </div>
  </${Card}>`
}
