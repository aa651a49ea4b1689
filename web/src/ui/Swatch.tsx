import type { JSX } from "preact";
import type { Look } from "../palette";

/** The dot of a class as the map draws it, shape included. */
export function Swatch({ look, size = 12 }: { look: Look; size?: number }): JSX.Element {
  const shapes = [
    <circle cx="8" cy="8" r="6.500" />,
    <rect x="2" y="2" width="12" height="12" rx="1.500" />,
    <path d="M8 1.500 15 14H1Z" />,
    <path d="M8 .5 15.500 8 8 15.500.5 8Z" />,
    <path d="M5.500 1h5v4.500H15v5h-4.500V15h-5v-4.500H1v-5h4.500Z" />,
  ];
  return (
    <svg class="swatch" width={size} height={size} viewBox="0 0 16 16" fill={look.colour} aria-hidden="true">
      {shapes[look.shape]}
    </svg>
  );
}
