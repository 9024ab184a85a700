//! The rows of a screen that shows a view.

use std::iter;

use super::headline;
use super::order;
use super::state::State;
use super::table::{self, Kind, Row};
use super::view::View;

/// The keys, for the last line.
const KEYS: &str =
    "q quit  s sort  r reverse  / filter  space pause  ↑↓ scroll  c collapse  h help";

/// Text before the keys if a filter hides rows.
const CLEAR: &str = "esc shows all  ";

const HELP: &str = "\
Each device has its groups, each group its members: packet sockets of one
fan-out group, which share the device's packets.

PPS      packets per second that the kernel gave to a member, dropped packets
         included; for a device, packets that arrived (members also get packets
         that it sends); ~ marks a rate over another time than the interval,
         because the member read its counters late
SHARE    a member's part of its group's packets; of a group, the skew: highest
         rate over the mean, 1.00 is even
DROP/S   packets lost per second, with a ! when there are any, DROPPED in all:
         by a member because its ring was full, by a device before a packet
         socket got them
BACKLOG  packets that wait in the ring
CPU      where the process ran last; =2 when it may run on CPU 2 only
AGE      age of the counters; stale: too old to describe the present
unread   the application has a share and never looks; stopped: by a signal
-        unknown: only programs that use this library publish counters

(3 of 4) rates of three members are known, and the sums are over these three
(1 of 4 shown) a filter hides the others; the sums are still over all four

s sort by next column  r reverse the order  / filter by the names of rows
esc no filter  space pause the view  c hide members";

/// The keys while the help is shown.
const BACK: &str = "h back  q quit";

/// How many lines of a screen are not table rows. A low screen keeps most of its lines for rows.
struct Lines {
    title: u16,
    devices: u16,
    head: u16,
    foot: u16,
}

impl Lines {
    fn of(height: u16, state: &State) -> Self {
        let typing = state.typing.is_some();
        let from = |least: u16| u16::from(height >= least);
        let above = u16::from(!state.help);
        Self {
            title: above * from(if typing { 5 } else { 4 }),
            devices: above * from(7),
            head: from(3),
            foot: from(if typing { 1 } else { 6 }),
        }
    }
}

/// The rows of a screen that shows a view. A small screen cuts off the right side and the bottom.
pub(crate) fn draw(view: &View, state: &State, (width, height): (u16, u16)) -> Vec<Row> {
    let lines = Lines::of(height, state);
    let width = usize::from(width);
    let mut rows = Vec::new();
    if lines.title > 0 {
        rows.push(row(Kind::Title, &headline::title(view, state, width)));
    }
    if lines.devices > 0 {
        let is_losing = headline::is_losing(view);
        let kind = if is_losing { Kind::Losing } else { Kind::Text };
        rows.push(row(kind, &headline::devices(view, width)));
    }
    let end = usize::from(height - lines.foot);
    let room = end.saturating_sub(rows.len() + usize::from(lines.head));
    rows.extend(body(view, state, width, (usize::from(lines.head), room)));
    rows.resize(end, row(Kind::Text, ""));
    if lines.foot > 0 {
        rows.push(row(Kind::Text, &footer(state, width)));
    }
    for row in &mut rows {
        row.text = table::fit(&row.text, width);
    }
    rows
}

/// The help, the table, or the reason why the table is empty.
fn body(view: &View, state: &State, width: usize, (heads, room): (usize, usize)) -> Vec<Row> {
    let lines = |text: &str| text.lines().map(|line| row(Kind::Text, line)).collect();
    if state.help {
        return lines(HELP);
    }
    let rows = rows(view, state, width);
    if rows.is_empty() {
        return lines(&nothing(state));
    }
    let scroll = state.scroll.min(rows.len().saturating_sub(room));
    let head = iter::once(table::head(width)).take(heads);
    head.chain(rows.into_iter().skip(scroll)).collect()
}

fn row(kind: Kind, text: &str) -> Row {
    let text = text.to_owned();
    Row { kind, text }
}

/// The last line: the keys, or the filter that the user is typing.
fn footer(state: &State, width: usize) -> String {
    if state.help {
        return BACK.to_owned();
    }
    if state.typing.is_none() {
        let clear = if state.filter.is_empty() { "" } else { CLEAR };
        return format!("{clear}{KEYS}");
    }
    let typed = format!("filter: {}_", state.filter);
    let explained = format!("{typed}  (enter keeps it, esc takes it back)");
    if table::width(&explained) <= width {
        return explained;
    }
    let mut end = typed.as_str();
    while table::width(end) > width {
        let mut letters = end.chars();
        letters.next();
        end = letters.as_str();
    }
    end.to_owned()
}

/// The rows of a view, filtered, in the order of `state`.
pub(crate) fn rows(view: &View, state: &State, width: usize) -> Vec<Row> {
    let mut view = order::filter(view.clone(), &state.filter);
    order::sort(&mut view, state.sort, state.reverse);
    table::rows(&view, width, state.collapsed)
}

/// Number of table rows that fit on a screen of this height.
pub(crate) fn room(height: u16, state: &State) -> usize {
    let lines = Lines::of(height, state);
    let others = lines.title + lines.devices + lines.head + lines.foot;
    usize::from(height.saturating_sub(others))
}

/// Why the view is empty, and what to do.
pub(crate) fn nothing(state: &State) -> String {
    if !state.filter.is_empty() {
        let filter = &state.filter;
        return format!("\nNo row has '{filter}' in its name or number.");
    }
    if let Some(device) = &state.device {
        return format!("\nNobody captures on '{device}'. If it was a device, it is gone.");
    }
    "\nNo packet sockets in this network namespace: nobody captures.\n\n\
     Start two members of a group and look again:\n\n    \
     fanpcap run -n 2 -- tcpdump -i DEVICE"
        .to_owned()
}

#[cfg(test)]
mod tests;
