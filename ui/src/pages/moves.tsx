export function Moves() { return <p class="empty">…</p>; }
