import type { JSX } from "preact";

const PATHS = {
  search: "M10.5 17a6.500 6.500 0 1 0 0-13 6.500 6.500 0 0 0 0 13ZM20 20l-4.800-4.800",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8ZM12 3v2M12 19v2M3 12h2M19 12h2M5.600 5.600 7 7M17 17l1.400 1.400M18.400 5.600 17 7M7 17l-1.400 1.400",
  moon: "M20 14.500A8 8 0 0 1 9.500 4a8 8 0 1 0 10.500 10.500Z",
  auto: "M4 5h16v11H4zM9 20h6M12 16v4",
  link: "M10 14a4 4 0 0 0 5.700 0l3-3A4 4 0 0 0 13 5.300l-1 1M14 10a4 4 0 0 0-5.700 0l-3 3A4 4 0 0 0 11 18.700l1-1",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  home: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5",
  close: "M6 6l12 12M18 6 6 18",
  warn: "M12 4 3 20h18L12 4ZM12 10v4.500M12 17.300v.2",
  star: "M12 3l2.400 6.600L21 12l-6.600 2.400L12 21l-2.400-6.600L3 12l6.600-2.400Z",
  down: "M6 9l6 6 6-6",
  keys: "M3 7h18v10H3zM7 10.500h.01M11 10.500h.01M15 10.500h.01M8 14h8",
} as const;

export function Icon({ name, size = 18 }: { name: keyof typeof PATHS; size?: number }): JSX.Element {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
