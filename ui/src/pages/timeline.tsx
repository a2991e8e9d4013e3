export function Timeline() { return <p class="empty">…</p>; }
