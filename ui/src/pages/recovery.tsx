export function RecoveryPage() { return <p class="empty">…</p>; }
