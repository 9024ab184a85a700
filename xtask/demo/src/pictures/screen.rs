//! Draws a terminal's screen as SVG, from text with escape sequences for colours as `tmux
//! capture-pane -e` prints it.

use std::fmt::Write;
use std::mem;

use super::escaped;

/// Size of a character in pixels.
const CELL: (f64, f64) = (7.8, 17.0);
const MARGIN: f64 = 14.0;
const PAPER: &str = "#15181d";
const INK: &str = "#d5dae1";
/// The terminal's eight colours.
const COLOURS: [&str; 8] = [
    "#15181d", "#f2777a", "#99cc99", "#ffcc66", "#6699cc", "#cc99cc", "#66cccc", "#d5dae1",
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Style {
    bold: bool,
    dim: bool,
    reverse: bool,
    colour: Option<usize>,
}

/// A screen as SVG.
pub(super) fn svg(screen: &str) -> String {
    let mut style = Style::default();
    let (mut drawn, mut widest, mut lines) = (String::new(), 0, 0);
    for (number, line) in screen.trim_end().lines().enumerate() {
        widest = widest.max(draw_line(&mut drawn, line, number, &mut style));
        lines = number + 1;
    }
    let width = 2.0 * MARGIN + cells(widest) * CELL.0;
    let height = 2.0 * MARGIN + cells(lines) * CELL.1;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         width=\"{width:.0}\" height=\"{height:.0}\" font-size=\"13\" \
         font-family=\"monospace\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{PAPER}\"/>\n{drawn}</svg>\n"
    )
}

/// Draws a line and returns its number of cells.
fn draw_line(drawn: &mut String, line: &str, number: usize, style: &mut Style) -> usize {
    let (mut column, mut run) = (0, String::new());
    let mut rest = line.chars();
    while let Some(next) = rest.next() {
        if next != '\u{1b}' {
            run.push(next);
            continue;
        }
        column = draw_run(drawn, &mut run, (column, number), *style);
        let sequence: String = rest.by_ref().take_while(|&c| c != 'm').collect();
        *style = changed(*style, sequence.trim_start_matches('['));
    }
    draw_run(drawn, &mut run, (column, number), *style)
}

/// Draws a run of one style from a cell on, clears it and returns the next column.
fn draw_run(drawn: &mut String, run: &mut String, at: (usize, usize), style: Style) -> usize {
    let run = mem::take(run);
    let length = run.chars().count();
    let (x, top) = (MARGIN + cells(at.0) * CELL.0, MARGIN + cells(at.1) * CELL.1);
    let ink = style
        .colour
        .map_or(INK, |colour| COLOURS[colour % COLOURS.len()]);
    if style.reverse && length > 0 {
        let width = cells(length) * CELL.0;
        let _ = writeln!(
            drawn,
            "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{}\" fill=\"{ink}\"/>",
            CELL.1
        );
    }
    let ink = if style.reverse { PAPER } else { ink };
    for (before, words) in chunks(&run) {
        draw_text(
            drawn,
            words,
            (x + cells(before) * CELL.0, top + 13.0),
            ink,
            style,
        );
    }
    at.0 + length
}

fn draw_text(drawn: &mut String, words: &str, at: (f64, f64), ink: &str, style: Style) {
    let width = cells(words.chars().count()) * CELL.0;
    let weight = if style.bold {
        " font-weight=\"bold\""
    } else {
        ""
    };
    let dim = if style.dim { " opacity=\"0.6\"" } else { "" };
    let _ = writeln!(
        drawn,
        "<text x=\"{:.1}\" y=\"{:.1}\" textLength=\"{width:.1}\" fill=\"{ink}\"{weight}{dim}>{}</text>",
        at.0,
        at.1,
        escaped(words)
    );
}

/// Parts separated by two or more blanks, with their first cells: columns stay aligned in any font.
fn chunks(run: &str) -> Vec<(usize, &str)> {
    let (mut found, mut column) = (Vec::new(), 0);
    for part in run.split("  ") {
        let blanks = part.chars().take_while(|c| c.is_whitespace()).count();
        if !part.trim().is_empty() {
            found.push((column + blanks, part.trim()));
        }
        column += part.chars().count() + 2;
    }
    found
}

/// The style after a sequence such as `38;5;6`.
fn changed(mut style: Style, sequence: &str) -> Style {
    let mut codes = sequence.split(';').map(|code| code.parse().unwrap_or(0));
    while let Some(code) = codes.next() {
        match code {
            0 => style = Style::default(),
            1 => style.bold = true,
            2 => style.dim = true,
            7 => style.reverse = true,
            22 => (style.bold, style.dim) = (false, false),
            27 => style.reverse = false,
            30..=37 => style.colour = Some(code - 30),
            38 => style.colour = codes.nth(1),
            39 => style.colour = None,
            _ => {}
        }
    }
    style
}

#[allow(clippy::cast_precision_loss, reason = "a screen has few cells")]
fn cells(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_last_over_lines_until_they_change() {
        let svg = svg("\u{1b}[1ma<b\u{1b}[0m  \u{1b}[38;5;1mc\nd\u{1b}[39m \u{1b}[7me f\n\n");
        let texts: Vec<&str> = svg
            .lines()
            .filter(|line| line.starts_with("<text"))
            .collect();
        let expected = [
            ("bold", ">a&lt;b<"),
            (COLOURS[1], ">c<"),
            (COLOURS[1], ">d<"),
            (PAPER, ">e f<"),
        ];
        assert_eq!(texts.len(), expected.len(), "{svg}");
        for (line, (look, text)) in texts.iter().zip(expected) {
            assert!(line.contains(look) && line.contains(text), "{line}");
        }
        assert!(
            texts[1].contains("x=\"53.0\""),
            "the sixth cell: {}",
            texts[1]
        );
    }
}
