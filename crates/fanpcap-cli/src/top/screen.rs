//! The screen: its state, what the keys do to it, and how a view is drawn.

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::figure::{UNKNOWN, bits, count, short};
use super::order::{self, Column};
use super::table::{self, Kind, Row};
use super::view::{Device, View};

/// What the user has chosen.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// The device that was asked for.
    pub(crate) device: Option<String>,
    /// The column that rows are sorted by.
    pub(crate) sort: Column,
    /// The other way round.
    pub(crate) reverse: bool,
    /// Only what this names is shown.
    pub(crate) filter: String,
    /// The filter is being typed, and was this before.
    pub(crate) typing: Option<String>,
    /// The view stays as it is.
    pub(crate) paused: bool,
    /// Members are hidden.
    pub(crate) collapsed: bool,
    /// The help is shown.
    pub(crate) help: bool,
    /// Rows scrolled away at the top.
    pub(crate) scroll: usize,
    /// The user has had enough.
    pub(crate) quit: bool,
}

impl State {
    /// Does what a key says. `furthest` is how many rows can be scrolled away before the last one shows.
    pub(crate) fn press(&mut self, key: KeyEvent, furthest: usize) {
        if key.kind == KeyEventKind::Release {
            return;
        }
        let ends = matches!(key.code, KeyCode::Char('c' | 'C'));
        if ends && key.modifiers.contains(KeyModifiers::CONTROL) {
            self.quit = true;
        } else if self.typing.is_some() {
            self.type_filter(key.code);
        } else {
            self.command(key.code, furthest);
        }
    }

    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "most keys of a keyboard mean nothing here"
    )]
    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.typing = None,
            KeyCode::Esc => self.filter = self.typing.take().unwrap_or_default(),
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => {}
        }
        self.scroll = 0;
    }

    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "most keys of a keyboard mean nothing here"
    )]
    fn command(&mut self, key: KeyCode, furthest: usize) {
        self.scroll = self.scroll.min(furthest);
        match key {
            KeyCode::Esc | KeyCode::Char('q') if self.help => self.help = false,
            KeyCode::Char('q') => self.quit = true,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('r') => self.reverse = !self.reverse,
            KeyCode::Char('/') => self.typing = Some(self.filter.clone()),
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char('c') => self.collapsed = !self.collapsed,
            KeyCode::Char('h' | '?') => self.help = !self.help,
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down => self.scroll = (self.scroll + 1).min(furthest),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(PAGE),
            KeyCode::PageDown => self.scroll = (self.scroll + PAGE).min(furthest),
            KeyCode::Home => self.scroll = 0,
            KeyCode::End => self.scroll = furthest,
            _ => {}
        }
    }
}

/// Rows that PageUp and PageDown go.
const PAGE: usize = 10;

/// The keys, on the last line.
const KEYS: &str =
    "q quit  s sort  r reverse  / filter  space pause  ↑↓ scroll  c collapse  h help";

const HELP: &str = "\
Each device has its groups, each group its members: packet sockets of one
fan-out group, which share the device's packets.

PPS      packets per second that the kernel gave to a member, dropped ones
         included; of a device, packets that arrived, while its members see
         those that it sends too
SHARE    a member's part of its group's packets; of a group, the skew: highest
         rate over the mean, x1.00 is even
DROP/S   packets lost per second, DROPPED in all: of a member because its ring
         was full, of a device before any packet socket saw them
BACKLOG  packets that wait in the ring
CPU      where the process ran last; =2 when it may run on CPU 2 only
AGE      age of the counters; stale when too old to tell of now
-        unknown: only programs on this library tell their counters

(3 of 4) rates of three members are known, and the sums are theirs
(1 of 4 shown) a filter hides the others; the sums stay those of all

s next column to sort by  r other way round  / filter by device, program,
group or pid  space hold the view  c hide members  q quit  h back";

/// Draws a view. What a small screen has no room for is cut off at the right and the bottom.
pub(crate) fn render(view: &View, state: &State, frame: &mut Frame<'_>) {
    let [top, body, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let title = Line::styled(title(view, state), bold);
    frame.render_widget(Paragraph::new(vec![title, Line::raw(devices(view))]), top);
    if state.help {
        frame.render_widget(Paragraph::new(HELP), body);
    } else {
        draw_table(view, state, frame, body);
    }
    let footer = match &state.typing {
        Some(_) => format!(
            "filter: {}_  (enter keeps it, esc takes it back)",
            state.filter
        ),
        None => KEYS.to_owned(),
    };
    frame.render_widget(Paragraph::new(footer), foot);
}

/// The rows of a view in the state's order, filtered.
pub(crate) fn rows(view: &View, state: &State, width: usize) -> Vec<Row> {
    let mut view = order::filter(view.clone(), &state.filter);
    order::sort(&mut view, state.sort, state.reverse);
    table::rows(&view, width, state.collapsed)
}

/// How many rows of the table a screen of that height has room for.
pub(crate) fn room(height: u16) -> usize {
    usize::from(height.saturating_sub(4))
}

fn draw_table(view: &View, state: &State, frame: &mut Frame<'_>, body: Rect) {
    let width = usize::from(body.width);
    let rows = rows(view, state, width);
    if rows.is_empty() {
        frame.render_widget(Paragraph::new(nothing(state)), body);
        return;
    }
    let room = usize::from(body.height).saturating_sub(1);
    let scroll = state.scroll.min(rows.len().saturating_sub(room));
    let shown = rows.iter().skip(scroll).take(room);
    let head = table::head(width);
    let lines: Vec<Line<'_>> = std::iter::once(&head)
        .chain(shown)
        .map(|row| Line::styled(row.text.as_str(), style(row.kind)))
        .collect();
    frame.render_widget(Paragraph::new(lines), body);
}

/// Why there is nothing to see, and what to do.
pub(crate) fn nothing(state: &State) -> String {
    if !state.filter.is_empty() {
        return format!("\nNothing has '{}' in its name or number.", state.filter);
    }
    if let Some(device) = &state.device {
        return format!("\nNobody captures on '{device}'. If it was a device, it is gone.");
    }
    "\nNo packet sockets in this network namespace: nobody captures.\n\n\
     Start two members of a group and look again:\n\n    \
     fanpcap run -n 2 -- tcpdump -i DEVICE"
        .to_owned()
}

/// The first line: when, where, how.
pub(crate) fn title(view: &View, state: &State) -> String {
    let name = view.network_namespace_name.as_ref();
    let name = name.map_or_else(String::new, |name| format!(" ({name})"));
    let descending = state.sort.is_descending() != state.reverse;
    let mut title = format!(
        "fanpcap top {}  {}  netns {}{name}  sort {} {}",
        time(view.time_unix_seconds),
        view.host,
        view.network_namespace,
        state.sort.name(),
        if descending { "▼" } else { "▲" },
    );
    if !state.filter.is_empty() && state.typing.is_none() {
        title += &format!("  filter {}", state.filter);
    }
    if state.paused {
        title.insert_str(0, "PAUSED  ");
    }
    title
}

/// The second line: what arrives at the device, the busiest of several, and what it loses.
pub(crate) fn devices(view: &View) -> String {
    // One without figures is less than one with none arriving.
    let rate = |device: &Device| device.received_packets_per_second;
    let mut busiest = view.devices.first();
    for device in view.devices.iter().skip(1) {
        if busiest.is_none_or(|other| rate(device) > rate(other)) {
            busiest = Some(device);
        }
    }
    let Some(device) = busiest else {
        return String::new();
    };
    let known = |text: Option<String>| text.unwrap_or_else(|| UNKNOWN.to_owned());
    let which = if view.devices.len() > 1 {
        "busiest: "
    } else {
        ""
    };
    format!(
        "{which}{} {} pps {}, lost {}/s: dropped {} missed {} fifo {}",
        device.device,
        known(device.received_packets_per_second.map(short)),
        known(device.received_bits_per_second.map(bits)),
        known(device.lost_packets_per_second.map(short)),
        known(device.dropped_packets_total.map(count)),
        known(device.missed_packets_total.map(count)),
        known(device.fifo_errors_total.map(count)),
    )
}

/// The time of day, UTC.
fn time(unix_seconds: f64) -> String {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a day's seconds, without the fraction"
    )]
    let of_day = unix_seconds.rem_euclid(86_400.0) as i32;
    let (hours, minutes) = (of_day / 3600, of_day / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02} UTC", of_day % 60)
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
