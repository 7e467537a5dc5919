"""How pages look: colours that colour-blind readers tell apart (Okabe and Ito 2008), light and dark."""

from __future__ import annotations

#: Okabe and Ito's colours without black, and without yellow, which is faint on white.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
BUSY, IDLE, OTHER = "#009E73", "#9AA0A6", "#6B6F76"

CSS = """
:root{color-scheme:light dark;--fore:#1b1d20;--back:#ffffff;--soft:#5b6168;--line:#d8dce1;--panel:#f5f6f8;
--link:#0072b2}
@media(prefers-color-scheme:dark){:root{--fore:#e6e8eb;--back:#16181b;--soft:#a3a9b1;--line:#3a3f45;--panel:#1f2226;
--link:#56b4e9}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1200px;padding:0 24px 40px;background:var(--back);color:var(--fore);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;overflow-wrap:break-word}
h1{font-size:1.5rem;line-height:1.3;margin:28px 0 8px}h2{font-size:1.15rem;margin:0 0 4px}
.lead{margin:0 0 6px;padding:8px 14px;border-left:4px solid var(--link);background:var(--panel)}
.tools{display:flex;flex-wrap:wrap;gap:8px;margin:0 0 6px}
nav ul{display:flex;flex-wrap:wrap;gap:4px 18px;list-style:none;margin:0;padding:8px 0;
border-bottom:1px solid var(--line)}
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}
section{margin:28px 0;padding-top:4px}.about{color:var(--soft);margin:0 0 12px}
dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:4px 20px;margin:0}dt{color:var(--soft)}
dd{margin:0;overflow-wrap:anywhere}
.long{max-height:560px}.wide{overflow:auto;border:1px solid var(--line);border-radius:6px;margin-top:8px}
table{border-collapse:collapse;width:100%;font-size:.87rem}
th,td{padding:4px 10px;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
td{overflow-wrap:break-word}
.paths td:first-child{overflow-wrap:anywhere;min-width:19rem}.paths td:last-child{min-width:15rem}
th{position:sticky;top:0;background:var(--panel)}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}th.number{white-space:normal}
.drawing{padding:12px}.drawing svg{display:block;margin:auto;max-width:100%;min-width:640px;height:auto}
.code{margin:8px 0}.code .tools{justify-content:flex-end;margin:0 0 4px}
pre{background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:10px;
overflow:auto;max-height:420px;font-size:.82rem;margin:0;white-space:pre-wrap;overflow-wrap:anywhere}
pre.columns{white-space:pre;overflow-wrap:normal}
input,button,select{font:inherit;font-size:.87rem;color:var(--fore);background:var(--panel);
border:1px solid var(--line);border-radius:6px;padding:4px 10px;max-width:100%}
.pickers{display:flex;flex-wrap:wrap;gap:8px 16px;margin:0 0 8px}.pickers label{color:var(--soft);font-size:.87rem}
.plot{width:100%}footer{color:var(--soft);border-top:1px solid var(--line);padding-top:10px}
@media(max-width:700px){body{padding:0 14px 30px}dl{grid-template-columns:minmax(0,1fr)}dt{margin-top:6px}
table{font-size:.78rem}th,td{padding:4px 5px}
.cards thead{display:none}.cards table,.cards tbody,.cards tr,.cards td{display:block;text-align:left}
.cards tr{padding:6px 4px;border-bottom:1px solid var(--line)}.cards tr[hidden],.cards td:empty{display:none}
.cards td{border:0;padding:1px 5px;white-space:normal;overflow-wrap:anywhere}
.cards td::before{content:attr(data-head) ": ";color:var(--soft)}.cards td[data-head=""]::before{content:""}}
@media print{nav,.filter,.tools,.pickers{display:none}.long,pre{max-height:none}.wide,pre{overflow:visible}}
"""
