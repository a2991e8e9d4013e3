export function StatePage() { return <p class="empty">…</p>; }
