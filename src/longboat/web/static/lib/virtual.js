// A virtual list in the page's own scrolling: only rows in sight exist, at heights known beforehand.
import { useEffect, useLayoutEffect, useRef, useState } from "./html.js"

const OVERSCAN = 8 // rows above and below, so that a quick wheel shows no gap

/** `tops[i]` is where item i begins; the last entry is the height of all. Gives [element, first, last). */
export function useVirtual(tops) {
  const element = useRef(null)
  const [range, setRange] = useState([0, 40])
  const measure = () => {
    if (!element.current) return
    const box = element.current.getBoundingClientRect()
    const first = Math.max(0, lower(tops, -box.top) - OVERSCAN)
    const last = Math.min(tops.length - 1, lower(tops, innerHeight - box.top) + 1 + OVERSCAN)
    setRange((before) => (before[0] === first && before[1] === last ? before : [first, last]))
  }
  const latest = useRef(measure)
  latest.current = measure
  useLayoutEffect(measure, [tops])
  useEffect(() => {
    let frame = 0
    const onScroll = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0
        latest.current()
      })
    }
    addEventListener("scroll", onScroll, { passive: true })
    addEventListener("resize", onScroll)
    return () => {
      removeEventListener("scroll", onScroll)
      removeEventListener("resize", onScroll)
      cancelAnimationFrame(frame)
    }
  }, [])
  return [element, range[0], Math.min(range[1], tops.length - 1)]
}

/** The last item that begins at or before `at`. */
function lower(tops, at) {
  let low = 0
  let high = tops.length - 1
  while (low < high) {
    const middle = (low + high + 1) >> 1
    if (tops[middle] <= at) low = middle
    else high = middle - 1
  }
  return low
}

/** Scrolls the page as little as needed for item `at` to be seen below the head and above the status bar. */
export function reveal(element, tops, at) {
  const box = element.getBoundingClientRect()
  const top = box.top + tops[at]
  const bottom = box.top + tops[at + 1]
  const head = 48 + 28
  const foot = innerHeight - 36
  if (top < head) scrollBy(0, top - head)
  else if (bottom > foot) scrollBy(0, bottom - foot)
}
