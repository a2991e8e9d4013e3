export function Events() { return <p class="empty">…</p>; }
