//! Draws a view on the screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::headline;
use super::order;
use super::state::State;
use super::table::{self, Kind, Row};
use super::view::View;

/// The keys, for the last line.
const KEYS: &str =
    "q quit  s sort  r reverse  / filter  space pause  ↑↓ scroll  c collapse  h help";

/// Text before the keys while a filter hides rows.
const CLEAR: &str = "esc shows all  ";

const HELP: &str = "\
Each device has its groups, each group its members: packet sockets of one
fan-out group, which share the device's packets.

PPS      packets per second that the kernel gave to a member, dropped ones
         included; of a device, packets that arrived, while its members see
         those that it sends too; ~ over another time than the interval, as
         the member read its counters late
SHARE    a member's part of its group's packets; of a group, the skew: highest
         rate over the mean, x1.00 is even
DROP/S   packets lost per second, with a ! when there are any, DROPPED in all:
         of a member because its ring was full, of a device before any packet
         socket saw them
BACKLOG  packets that wait in the ring
CPU      where the process ran last; =2 when it may run on CPU 2 only
AGE      age of the counters; stale when too old to tell of now
unread   the application keeps a share and does not look for its packets
-        unknown: only programs on this library tell their counters

(3 of 4) rates of three members are known, and the sums are theirs
(1 of 4 shown) a filter hides the others; the sums stay those of all

s next column to sort by  r other way round  / filter by what rows are named
esc no filter  space hold the view  c hide members  q quit  h back";

/// The lines beside the rows that a screen of some height has: a low screen keeps its lines for
/// rows.
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

/// Draws a view. A small screen cuts off the right and the bottom.
pub(crate) fn render(view: &View, state: &State, frame: &mut Frame<'_>) {
    let width = usize::from(frame.area().width);
    let lines = Lines::of(frame.area().height, state);
    let [top, second, body, foot] = Layout::vertical([
        Constraint::Length(lines.title),
        Constraint::Length(lines.devices),
        Constraint::Min(0),
        Constraint::Length(lines.foot),
    ])
    .areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let title = Line::styled(headline::title(view, state, width), bold);
    frame.render_widget(Paragraph::new(title), top);
    let losing = if headline::is_losing(view) {
        style(Kind::Losing)
    } else {
        Style::new()
    };
    let devices = Line::styled(headline::devices(view, width), losing);
    frame.render_widget(Paragraph::new(devices), second);
    if state.help {
        frame.render_widget(Paragraph::new(HELP), body);
    } else {
        draw_table(view, state, frame, body, lines.head);
    }
    frame.render_widget(Paragraph::new(footer(state, width)), foot);
}

/// The last line: the keys, or the end of the filter that the user is typing.
fn footer(state: &State, width: usize) -> String {
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

/// Rows of the table that fit on a screen of this height.
pub(crate) fn room(height: u16, state: &State) -> usize {
    let lines = Lines::of(height, state);
    let others = lines.title + lines.devices + lines.head + lines.foot;
    usize::from(height.saturating_sub(others))
}

fn draw_table(view: &View, state: &State, frame: &mut Frame<'_>, body: Rect, heads: u16) {
    let width = usize::from(body.width);
    let rows = rows(view, state, width);
    if rows.is_empty() {
        frame.render_widget(Paragraph::new(nothing(state)), body);
        return;
    }
    let room = usize::from(body.height.saturating_sub(heads));
    let scroll = state.scroll.min(rows.len().saturating_sub(room));
    let shown = rows.iter().skip(scroll).take(room);
    let head = table::head(width);
    let lines: Vec<Line<'_>> = std::iter::once(&head)
        .take(usize::from(heads))
        .chain(shown)
        .map(|row| Line::styled(row.text.as_str(), style(row.kind)))
        .collect();
    frame.render_widget(Paragraph::new(lines), body);
}

/// Why the view is empty, and what to do.
pub(crate) fn nothing(state: &State) -> String {
    if !state.filter.is_empty() {
        let filter = &state.filter;
        return format!("\nNothing has '{filter}' in its name or number: Escape shows all.");
    }
    if let Some(device) = &state.device {
        return format!("\nNobody captures on '{device}'. If it was a device, it is gone.");
    }
    "\nNo packet sockets in this network namespace: nobody captures.\n\n\
     Start two members of a group and look again:\n\n    \
     fanpcap run -n 2 -- tcpdump -i DEVICE"
        .to_owned()
}

fn style(kind: Kind) -> Style {
    let style = Style::new();
    match kind {
        Kind::Head => style.add_modifier(Modifier::REVERSED),
        Kind::Device => style.add_modifier(Modifier::BOLD),
        Kind::Group | Kind::Counters => style.fg(Color::Cyan),
        Kind::Member => style,
        Kind::Losing => style.fg(Color::Red),
        Kind::Dim => style.add_modifier(Modifier::DIM),
    }
}

#[cfg(test)]
mod tests;
