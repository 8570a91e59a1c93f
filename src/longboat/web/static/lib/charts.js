// Curves: uPlot with the colours of the page, one cursor over all charts of a page, the legend below as text.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js"
import { value } from "./format.js"
import { useWidth } from "./parts.js"

let uPlotClass = null
/** uPlot is loaded with the first chart: the list of runs needs none. */
async function load() {
  uPlotClass ||= (await import("../vendor/uplot.js")).default
  return uPlotClass
}

export const COLORS = ["accent", "c2", "c3", "c4", "c5", "c6"]
const DASHES = [[], [5, 3], [2, 3], [8, 3, 2, 3], [1, 2], [10, 4]]
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()
/** light-dark() is not resolved in custom properties: a real element tells what is painted. */
function painted(name) {
  const probe = document.createElement("i")
  probe.style.color = `var(--${name})`
  document.body.append(probe)
  const told = getComputedStyle(probe).color
  probe.remove()
  return told || color(name)
}

function useTheme() {
  const [turn, setTurn] = useState(0)
  useEffect(() => {
    const changed = () => setTurn((before) => before + 1)
    const media = matchMedia("(prefers-color-scheme: dark)")
    addEventListener("themechange", changed)
    media.addEventListener("change", changed)
    return () => {
      removeEventListener("themechange", changed)
      media.removeEventListener("change", changed)
    }
  }, [])
  return turn
}

/** Vertical rules in amber: a new attempt begins. */
const rules = (marks) => (plot) => {
  const { ctx, bbox } = plot
  ctx.save()
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`
  for (const { at, title, tone = "warn" } of marks) {
    const x = plot.valToPos(at, "x", true)
    if (x < bbox.left || x > bbox.left + bbox.width) continue
    ctx.strokeStyle = ctx.fillStyle = painted(tone)
    ctx.lineWidth = devicePixelRatio
    ctx.beginPath()
    ctx.moveTo(x, bbox.top)
    ctx.lineTo(x, bbox.top + bbox.height)
    ctx.stroke()
    const left = x > bbox.left + bbox.width / 2
    ctx.textAlign = left ? "right" : "left"
    ctx.fillText(title, x + (left ? -5 : 5) * devicePixelRatio, bbox.top + 11 * devicePixelRatio)
  }
  ctx.restore()
}

function options({ width, height, series, time, log, marks, stepped, legend, uPlot, range, ticks }) {
  const grid = { stroke: painted("line"), width: 1 }
  const axis = { stroke: painted("text-3"), grid, ticks: { show: false }, font: "11px system-ui, sans-serif", gap: 4 }
  return {
    width,
    height,
    padding: [8, 22, 0, 0], // half of the last word below stands outside
    legend: { show: false },
    cursor: { sync: { key: "page" }, drag: { x: true, y: false }, points: { size: 6 } },
    scales: { x: { time }, y: { distr: log ? 3 : 1, ...(range ? { range } : {}) } },
    axes: [
      { ...axis, size: 24, incrs: time ? CLOCK_STEPS : undefined, ...(time ? { values: clockTicks } : { values: (_, places) => places.map(ticks || value) }), space: width < 420 ? 90 : 60 },
      { ...axis, size: (_, words) => 14 + 7 * Math.max(2, ...(words || []).map((word) => word.length)), values: (_, places) => places.map((tick) => (tick === null ? "" : value(tick))) },
    ],
    series: [
      {},
      ...series.map((entry, at) => ({
        label: entry.title,
        stroke: painted(entry.color || COLORS[at % COLORS.length]),
        width: entry.ghost ? 1 : 1.5,
        alpha: entry.ghost ? 0.3 : 1,
        dash: entry.dash || (entry.ghost ? [] : DASHES[at % DASHES.length]),
        fill: entry.fill ? `color-mix(in srgb, ${painted(entry.color || COLORS[at % COLORS.length])} 10%, transparent)` : undefined,
        points: { show: false },
        spanGaps: false,
        ...(stepped ? { paths: uPlot.paths.stepped({ align: 1 }) } : {}),
      })),
    ],
    hooks: { draw: [rules(marks)], setCursor: [legend] },
  }
}

/** Seconds between ticks. uPlot has no step between one minute and five: a chart of four minutes that is narrow had no
 * tick but one behind its end. */
const CLOCK_STEPS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 180, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 345600, 691200, 1382400, 2764800, 5529600]
const two = (n) => String(n).padStart(2, "0")
const clockTicks = (_, ticks) => {
  const long = ticks.length > 1 && ticks[ticks.length - 1] - ticks[0] > 86400
  const fine = ticks.length > 1 && ticks[1] - ticks[0] < 60
  return ticks.map((tick) => {
    const at = new Date(tick * 1000)
    const finest = ticks.length > 1 && ticks[1] - ticks[0] < 1
    const time = `${finest ? "" : `${two(at.getHours())}:`}${two(at.getMinutes())}${fine ? `:${two(at.getSeconds())}` : ""}${finest ? `.${String(at.getMilliseconds()).padStart(3, "0").slice(0, ticks[1] - ticks[0] < 0.1 ? 2 : 1)}` : ""}`
    return long ? `${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}` : time
  })
}

/** `data`: uPlot's columns, the first is x. `series`: [{title, color, ghost, dash}]. `label` tells what is seen. */
export function Chart({ data, series, label, height = 190, time = true, log = false, marks = [], stepped = false, range, ticks }) {
  const [box, width] = useWidth(0)
  const plot = useRef(null)
  const legend = useRef(null)
  const theme = useTheme()
  const [uPlot, setUplot] = useState(() => uPlotClass)
  useEffect(() => {
    if (!uPlot) load().then((loaded) => setUplot(() => loaded))
  }, [])
  const columns = useRef(data)
  columns.current = data
  const shape = JSON.stringify([series, time, log, marks, stepped, range])
  useLayoutEffect(() => {
    if (!uPlot || !width) return undefined
    const target = box.current
    const told = (self) => {
      const items = legend.current?.children || []
      for (let at = 0; at < items.length; at += 1) {
        const last = series[at]?.isNow ? self.data[0].length - 1 : lastOf(self.data[at + 1])
        const index = self.cursor.idx ?? last
        items[at].lastChild.textContent = value(self.data[at + 1]?.[index] ?? null)
      }
    }
    plot.current = new uPlot(options({ width, height, series, time, log, marks, stepped, legend: told, uPlot, range, ticks }), columns.current, target)
    told(plot.current)
    const reset = () => plot.current?.setData(plot.current.data, true)
    addEventListener("zoomreset", reset)
    return () => {
      removeEventListener("zoomreset", reset)
      plot.current.destroy()
      plot.current = null
    }
  }, [uPlot, width, theme, shape])
  useEffect(() => {
    const self = plot.current
    if (!self) return
    const zoomed = self.scales.x.min > self.data[0][0] || self.scales.x.max < self.data[0][self.data[0].length - 1]
    self.setData(data, !zoomed) // the view moves only if its right end is "now"
  }, [data])
  return html`<figure role="img" aria-label=${label}>
    <div class="chart" ref=${box} style=${{ height: `${height}px` }}></div>
    <ul class="keyline legend" ref=${legend} aria-hidden="true">
      ${series.map((entry, at) => html`<li key=${entry.title}><${Swatch} at=${at} entry=${entry} />${entry.title} <b>-</b></li>`)}
    </ul>
  </figure>`
}

const lastOf = (column) => {
  for (let at = (column?.length || 0) - 1; at >= 0; at -= 1) if (column[at] !== null && column[at] !== undefined) return at
  return 0
}

const Swatch = ({ at, entry }) => html`<svg class="sw-line" width="16" height="8"><path d="M0 4H16" style=${{ stroke: `var(--${entry.color || COLORS[at % COLORS.length]})` }} stroke-dasharray=${(entry.dash || DASHES[at % DASHES.length]).join(" ")} /></svg>`

/** A line of points [x, y] in a box, the same scale for all that are compared. */
export function Spark({ points, low, high, width = 100, height = 28, area = true }) {
  if (!points?.length) return html`<svg viewBox=${`0 0 ${width} ${height}`} preserveAspectRatio="none" aria-hidden="true"></svg>`
  const xs = points.map((point) => point[0])
  const [x0, x1] = [xs[0], xs[xs.length - 1]]
  const spread = high - low || 1
  let path = ""
  let pen = "M"
  for (const [x, y] of points) {
    if (y === null) {
      pen = "M" // a gap is a gap
      continue
    }
    path += `${pen}${((width * (x - x0)) / (x1 - x0 || 1)).toFixed(1)} ${(height - 1 - ((height - 2) * (Math.min(high, y) - low)) / spread).toFixed(1)}`
    pen = "L"
  }
  return html`<svg viewBox=${`0 0 ${width} ${height}`} preserveAspectRatio="none" aria-hidden="true">
    ${area && html`<path class="a" d=${`${path}L${width} ${height}L0 ${height}Z`} />`}<path class="p" d=${path} />
  </svg>`
}

/** Bars of how often a value occurs. */
export function Histogram({ values, label, mark }) {
  const [box, width] = useWidth(300)
  const height = 120
  const sorted = [...values].sort((a, b) => a - b)
  const high = sorted[Math.floor(sorted.length * 0.995)] ?? 1 // a single hiccup does not squeeze all others into one bar
  const low = sorted[0] ?? 0
  const bins = new Array(Math.max(10, Math.min(40, Math.floor(width / 10)))).fill(0)
  for (const given of sorted) bins[Math.min(bins.length - 1, Math.floor(((given - low) / (high - low || 1)) * bins.length))] += 1
  const top = Math.max(...bins, 1)
  const step = width / bins.length
  const at = (given) => (width * Math.max(0, Math.min(1, (given - low) / (high - low || 1))))
  return html`<div ref=${box}>
    <svg class="plot" width=${width} height=${height} role="img" aria-label=${label}>
      ${bins.map((number, at) => html`<rect class="col" x=${(at * step + 0.5).toFixed(1)} width=${Math.max(1, step - 1).toFixed(1)} y=${(height - 20 - ((height - 38) * number) / top).toFixed(1)} height=${(((height - 38) * number) / top).toFixed(1)} />`)}
      <path class="axis" d=${`M0 ${height - 19.5}H${width}`} />
      <text x="0" y=${height - 5}>${value(low)} s</text>
      <text x=${width} y=${height - 5} text-anchor="end">${value(high)} s</text>
      ${mark !== undefined && html`<path class="cursor" d=${`M${at(mark).toFixed(1)} 4V${height - 20}`} /><text x=${at(mark) + (at(mark) > width / 2 ? -5 : 5)} y="11" text-anchor=${at(mark) > width / 2 ? "end" : "start"}>median ${value(mark)} s</text>`}
    </svg>
  </div>`
}
