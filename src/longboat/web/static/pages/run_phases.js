// The phases of a run to scale, and how long each took.
import { clock, count, seconds, span } from "../lib/format.js"
import { html, useMemo } from "../lib/html.js"
import { Card, useWidth } from "../lib/parts.js"

const ORDER = ["queued", "pulling", "setup", "training", "recovering"]
const TITLES = { queued: "Queued", pulling: "Pulling", setup: "Setup", training: "Training", recovering: "Recovering" }
const NAME_PX = 58 // "attempt 12", with a gap
const MIN_PX = 9 // no phase is thinner: a short one is often the one that matters

/** Where each piece begins and how wide it is: to scale, none thinner than the minimum. */
export function place(pieces, width, least = MIN_PX) {
  const gap = 1.5
  const usable = width - gap * (pieces.length - 1)
  const min = Math.min(least, usable / pieces.length)
  const total = pieces.reduce((sum, piece) => sum + piece.s, 0) || 1
  let wide = pieces.map((piece) => (usable * piece.s) / total)
  const short = wide.filter((px) => px < min)
  const over = short.reduce((sum, px) => sum + min - px, 0)
  const rest = wide.filter((px) => px >= min).reduce((sum, px) => sum + px, 0)
  wide = wide.map((px) => (px < min ? min : px * (1 - over / (rest || 1))))
  let x = 0
  return wide.map((px) => {
    const from = x
    x += px + gap
    return { x: from, width: px }
  })
}

function Bar({ pieces }) {
  const [box, width] = useWidth(600)
  const placed = place(pieces, Math.max(60, width), width < 500 ? 6 : MIN_PX)
  // Where two names would touch, the later attempt has its own.
  const begins = pieces.map((piece, at) => (piece.attempt && (at === 0 || pieces[at - 1].attempt !== piece.attempt) ? Math.min(placed[at].x, width - NAME_PX) : null))
  const named = begins.map((x, at) => x !== null && !begins.slice(at + 1).some((later) => later !== null && later - x < NAME_PX))
  const label = `Phases: ${pieces.map((piece) => `${piece.phase} ${span(piece.s)}`).join(", ")}`
  return html`<div ref=${box} class="timeline-box">
    <svg class="timeline" width=${width} height="62" role="img" aria-label=${label}>
      ${pieces.map((piece, at) => {
        const { x, width: px } = placed[at]
        const title = piece.phase === "training" && px > 120 ? `training ${span(piece.s)}` : px > 64 ? span(piece.s) : ""
        return html`<g>
          <rect class=${`ph ${piece.phase}`} x=${(x + 0.5).toFixed(1)} y="20.5" width=${Math.max(1, px - 1).toFixed(1)} height="22" rx="2"><title>${[`${piece.phase} ${span(piece.s)}`, piece.reason].filter(Boolean).join(": ")}</title></rect>
          ${title && html`<text class=${`in ${piece.phase}`} x=${x + px / 2} y="35.500" text-anchor="middle">${title}</text>`}
          ${named[at] && html`<text x=${begins[at]} y="12">attempt ${piece.attempt}</text>`}
        </g>`
      })}
      <text x="0" y="58">${clock(pieces[0].started)}</text>
      <text x=${width} y="58" text-anchor="end">${pieces[pieces.length - 1].ended ? clock(pieces[pieces.length - 1].ended) : `now ${clock(Date.now() / 1000)}`}</text>
    </svg>
  </div>`
}

export function Phases({ timeline, twice }) {
  const turn = Math.floor(Date.now() / 1000)
  const pieces = useMemo(() => (timeline || []).map((piece) => ({ ...piece, s: Math.max(0, (seconds(piece.ended) ?? turn) - seconds(piece.started)) })), [timeline, turn])
  if (!pieces.length) return null
  const total = pieces.reduce((sum, piece) => sum + piece.s, 0)
  const sums = ORDER.map((phase) => {
    const those = pieces.filter((piece) => piece.phase === phase)
    return { phase, s: those.reduce((sum, piece) => sum + piece.s, 0), times: those.length }
  }).filter((entry) => entry.times)
  const trained = sums.find((entry) => entry.phase === "training")?.s || 0
  return html`<${Card} id="phases" title="Phases" sub=${`${span(total)} in all; ${total ? Math.round((100 * trained) / total) : 0}% of it training`}>
    <div class="body">
      <${Bar} pieces=${pieces} />
      <dl class="phases">
        ${sums.map(
          ({ phase, s, times }) => html`<div>
            <dt><svg width="12" height="12" aria-hidden="true"><rect class=${`ph ${phase}`} x=".5" y=".5" width="11" height="11" rx="2" /></svg>${TITLES[phase]}</dt>
            <dd>${span(s)} ${times > 1 && html`<small>${times} times</small>`}</dd>
          </div>`,
        )}
        ${twice && html`<div><dt>Done twice</dt><dd>${count(twice)} <small>steps</small></dd></div>`}
      </dl>
    </div>
  </${Card}>`
}
