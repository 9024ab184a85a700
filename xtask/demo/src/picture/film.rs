//! An SVG of terminals whose rows change with time. Styles (CSS) animate the picture, so that it
//! moves in an `<img>` too. Viewers that show no animation show its end.

use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use vt100::{Color, Screen};

use super::terminal::{COLUMNS, Record, emulator};

/// Changes of one slot are shown at once.
const SLOT: Duration = Duration::from_millis(100);
/// How many slots the picture stands still at its end.
const REST: usize = 70;
const CELL: f64 = 7.8;
const LINE: f64 = 17.0;
const MARGIN: f64 = 14.0;
const GREY: &str = "#8a97a6";
const FONTS: &str = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace";
const STYLE: &str = "text{white-space:pre;fill:#d5dae1}.b{font-weight:bold}.d{fill:#8a97a6}\
    .i{fill:#15181d}.t{fill:#8a97a6}.c{fill:#f0b46a;font-weight:bold}\
    @media (prefers-reduced-motion:reduce){g{animation:none!important}}";

/// The slots, from the first to before the second, in which something is shown.
type Span = (usize, usize);

/// The SVG elements of the picture, by the time in which they are shown.
pub(super) struct Film {
    shown: BTreeMap<Span, String>,
    end: usize,
    height: f64,
}

/// A row that is shown since a slot.
#[derive(Clone, Default)]
struct Row {
    since: usize,
    drawn: String,
}

impl Film {
    /// Puts the terminals one below the other, and the captions, each with its time, below them.
    pub(super) fn new<const N: usize>(
        records: [Record; N],
        captions: Vec<(Duration, String)>,
    ) -> Self {
        let times = records.iter().flat_map(|it| &it.written);
        let last = times.map(|(time, _)| slot(*time)).max().unwrap_or(0);
        let mut film = Self {
            shown: BTreeMap::new(),
            end: last + REST,
            height: MARGIN,
        };
        for record in records {
            film.add_terminal(record);
        }
        film.add_captions(captions);
        film
    }

    fn add_terminal(&mut self, record: Record) {
        let top = self.height;
        let rows = usize::from(record.rows);
        let height = f64::from(record.rows) * LINE;
        let width = f64::from(COLUMNS) * CELL + 12.0;
        let title = format!(
            "<rect x=\"8\" y=\"{top}\" width=\"{width}\" height=\"{}\" rx=\"5\" fill=\"#1d2229\"/>\
             <text class=\"t\" x=\"{MARGIN}\" y=\"{}\">{}</text>",
            height + LINE + 6.0,
            top + 13.0,
            record.title
        );
        self.show((0, self.end), &title);
        let mut parser = emulator(record.rows);
        let mut shown = vec![Row::default(); rows];
        let mut written = record.written.into_iter().peekable();
        while let Some((time, bytes)) = written.next() {
            parser.process(&bytes);
            let now = slot(time);
            if written.peek().is_none_or(|(next, _)| slot(*next) > now) {
                for (number, row) in shown.iter_mut().enumerate() {
                    let y = top + LINE + 14.0 + number as f64 * LINE;
                    self.change(row, draw_row(parser.screen(), number, y), now);
                }
            }
        }
        for mut row in shown {
            self.change(&mut row, String::new(), self.end);
        }
        self.height = top + height + LINE + 14.0;
    }

    fn add_captions(&mut self, captions: Vec<(Duration, String)>) {
        let y = self.height + 12.0;
        let mut row = Row::default();
        for (time, text) in captions {
            let text = escape(&text);
            let drawn = format!("<text class=\"c\" x=\"{MARGIN}\" y=\"{y}\">{text}</text>");
            self.change(&mut row, drawn, slot(time));
        }
        self.change(&mut row, String::new(), self.end);
        self.height += LINE + 8.0;
    }

    /// Shows `drawn` in the place of what the row has shown.
    fn change(&mut self, row: &mut Row, drawn: String, now: usize) {
        if row.drawn != drawn {
            let old = mem::replace(&mut row.drawn, drawn);
            let since = mem::replace(&mut row.since, now);
            self.show((since, now), &old);
        }
    }

    fn show(&mut self, span: Span, drawn: &str) {
        if span.0 < span.1 && !drawn.is_empty() {
            self.shown.entry(span).or_default().push_str(drawn);
        }
    }

    /// The picture.
    pub(super) fn svg(&self) -> String {
        let width = f64::from(COLUMNS) * CELL + 2.0 * MARGIN;
        let height = self.height;
        // What is always shown comes first, as it has the background of the rest.
        let always = (0, self.end);
        let mut body = self.shown.get(&always).cloned().unwrap_or_default();
        let mut style = String::from(STYLE);
        for (number, (&span, drawn)) in self.shown.iter().enumerate() {
            if span != always {
                style.push_str(&self.animation(number, span));
                body.push_str(&format!("<g id=\"k{number}\">{drawn}</g>\n"));
            }
        }
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" font-size=\"13\" font-family=\"{FONTS}\">\n\
             <style>{style}</style>\n\
             <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#15181d\"/>\n{body}</svg>\n"
        )
    }

    /// The style that shows the group `k{number}` in a part of the film. Without animations, groups
    /// that are shown at the end are visible.
    fn animation(&self, number: usize, (since, until): Span) -> String {
        let percent = |slot: usize| 100.0 * slot as f64 / self.end as f64;
        let seconds = self.end as f64 * SLOT.as_secs_f64();
        let before = if since > 0 {
            "0%{visibility:hidden}"
        } else {
            ""
        };
        let (still, after) = if until < self.end {
            let hidden = format!("{:.2}%{{visibility:hidden}}", percent(until));
            ("hidden", hidden)
        } else {
            ("visible", String::new())
        };
        format!(
            "@keyframes k{number}{{{before}{:.2}%{{visibility:visible}}{after}}}\
             #k{number}{{visibility:{still};animation:k{number} {seconds:.1}s step-end infinite}}\n",
            percent(since)
        )
    }
}

fn slot(time: Duration) -> usize {
    usize::try_from(time.as_millis() / SLOT.as_millis()).expect("a film of minutes")
}

/// How a cell looks.
#[derive(Clone, Copy, PartialEq)]
struct Look {
    colour: Color,
    bold: bool,
    dim: bool,
    inverse: bool,
}

/// Draws a row of a screen: each run of cells with one look is an element whose length is fixed, so
/// that the columns stay where they are with every font.
fn draw_row(screen: &Screen, number: usize, y: f64) -> String {
    let row = u16::try_from(number).expect("a terminal's row");
    let cursor = (!screen.hide_cursor()).then(|| screen.cursor_position());
    let mut runs: Vec<(u16, Look, String)> = Vec::new();
    for column in 0..COLUMNS {
        let Some(cell) = screen.cell(row, column) else {
            continue;
        };
        let look = Look {
            colour: cell.fgcolor(),
            bold: cell.bold(),
            dim: cell.dim(),
            inverse: cell.inverse() != (cursor == Some((row, column))),
        };
        let text = if cell.has_contents() {
            cell.contents()
        } else {
            " "
        };
        match runs.last_mut() {
            Some((_, last, run)) if *last == look => run.push_str(text),
            _ => runs.push((column, look, text.to_owned())),
        }
    }
    let mut drawn = String::new();
    for (column, look, text) in runs {
        draw_run(&mut drawn, y, column, look, &text);
    }
    drawn
}

fn draw_run(drawn: &mut String, y: f64, column: u16, look: Look, text: &str) {
    let at = |column: usize| MARGIN + column as f64 * CELL;
    let column = usize::from(column);
    let cells = text.chars().count();
    if look.inverse {
        let (x, width) = (at(column), cells as f64 * CELL);
        let y = y - 13.0;
        drawn.push_str(&format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{LINE}\" fill=\"{GREY}\"/>"
        ));
    }
    let text = text.trim_end();
    let blanks = text.len() - text.trim_start().len();
    let text = text.trim_start();
    if text.is_empty() {
        return;
    }
    let x = at(column + blanks);
    let length = text.chars().count() as f64 * CELL;
    let class = class(look);
    let text = escape(text);
    drawn.push_str(&format!(
        "<text{class} x=\"{x:.1}\" y=\"{y}\" textLength=\"{length:.1}\">{text}</text>"
    ));
}

/// The attributes of a run's look.
fn class(look: Look) -> String {
    let mut names = Vec::new();
    if look.bold {
        names.push("b");
    }
    if look.dim {
        names.push("d");
    }
    if look.inverse {
        names.push("i");
    }
    let class = match names[..] {
        [] => String::new(),
        _ => format!(" class=\"{}\"", names.join(" ")),
    };
    match colour(look.colour) {
        Some(colour) if !look.inverse => format!("{class} style=\"fill:{colour}\""),
        _ => class,
    }
}

/// The eight colours of a terminal.
fn colour(colour: Color) -> Option<&'static str> {
    const COLOURS: [&str; 8] = [
        "#5b6673", "#e8705f", "#8fc174", "#e6b450", "#6cb0ee", "#c58ae0", "#5fc7c7", "#d5dae1",
    ];
    match colour {
        Color::Idx(number) => COLOURS.get(usize::from(number % 8)).copied(),
        Color::Default | Color::Rgb(..) => None,
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(written: &[(u64, &str)]) -> Record {
        let bytes =
            |&(time, text): &(u64, &str)| (Duration::from_millis(time), text.as_bytes().to_vec());
        Record {
            title: "one",
            rows: 2,
            written: written.iter().map(bytes).collect(),
        }
    }

    #[test]
    fn a_row_is_shown_from_its_change_to_the_next() {
        let written = [
            (0, "\u{1b}[?25lfirst"),
            (1000, "\r\u{1b}[1msecond"),
            (1050, "!"),
        ];
        let film = Film::new([record(&written)], vec![]);
        let end = 10 + REST;
        assert_eq!(film.end, end);
        let texts = |span: Span| film.shown.get(&span).map_or("", String::as_str);
        assert!(
            texts((0, 10)).contains(">first</text>"),
            "{}",
            texts((0, 10))
        );
        let second = texts((10, end));
        assert!(second.contains("class=\"b\""), "{second}");
        assert!(second.contains(">second!</text>"), "{second}");
        assert_eq!(film.shown.len(), 3, "and the title");
    }

    #[test]
    fn without_an_animation_the_end_is_shown() {
        let film = Film::new([record(&[(0, "a"), (500, "\rb")])], vec![]);
        let svg = film.svg();
        assert!(svg.contains("#k0{visibility:hidden;"), "{svg}");
        assert!(svg.contains("visibility:visible;animation:k2"), "{svg}");
        assert!(
            svg.contains("@keyframes k0{0.00%{visibility:visible}6.67%{visibility:hidden}}"),
            "{svg}"
        );
    }
}
