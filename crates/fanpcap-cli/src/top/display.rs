//! Writes changed rows to the terminal's alternate screen. Restores the terminal when the command
//! ends, also after a panic.

use std::io::{self, Write};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::{ContentStyle, PrintStyledContent, Stylize};
use crossterm::terminal::{self, Clear, ClearType, DisableLineWrap, EnableLineWrap};
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{execute, queue};

use super::table::{self, Kind, Row};

/// Whether the terminal must be restored. Restoring it twice would move the cursor back over text
/// that was printed in between.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The screen. It restores the terminal when it is dropped, or when a thread panics.
#[derive(Debug, Default)]
pub(crate) struct Display {
    size: (u16, u16),
    shown: Vec<Row>,
}

impl Display {
    /// Switches the terminal to the screen.
    ///
    /// # Errors
    /// The terminal can't be changed.
    pub(crate) fn open() -> io::Result<Self> {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore();
            hook(info);
        }));
        terminal::enable_raw_mode()?;
        IS_TAKEN.store(true, Ordering::SeqCst);
        let display = Self::default();
        // A terminal may show characters wider than we compute. Without line wrap, a row that is
        // then too wide does not continue in the next row.
        execute!(io::stdout(), EnterAlternateScreen, Hide, DisableLineWrap)?;
        Ok(display)
    }

    /// Shows the rows of a screen of `size`, in one write.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(crate) fn show(&mut self, size: (u16, u16), rows: Vec<Row>) -> io::Result<()> {
        let mut changes = Vec::new();
        self.write_changes(size, rows, &mut changes)?;
        let mut terminal = io::stdout().lock();
        terminal.write_all(&changes)?;
        terminal.flush()
    }

    /// Marks all rows as outdated: after a resize, the contents of the terminal are unknown.
    pub(crate) fn forget(&mut self) {
        self.shown.clear();
    }

    fn write_changes(
        &mut self,
        size: (u16, u16),
        rows: Vec<Row>,
        to: &mut impl Write,
    ) -> io::Result<()> {
        if size != self.size {
            self.forget();
        }
        let (width, height) = size;
        for (number, row) in (0..height).zip(&rows) {
            if self.shown.get(usize::from(number)) == Some(row) {
                continue;
            }
            let text = style(row.kind).apply(row.text.as_str());
            queue!(to, MoveTo(0, number), PrintStyledContent(text))?;
            // After a full row, the cursor is on the row's last letter, which must not be cleared.
            if table::width(&row.text) < usize::from(width) {
                queue!(to, Clear(ClearType::UntilNewLine))?;
            }
        }
        (self.size, self.shown) = (size, rows);
        Ok(())
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal, unless that is done already.
pub(crate) fn restore() {
    if IS_TAKEN.swap(false, Ordering::SeqCst) {
        // Errors are ignored: these calls fail if the terminal is gone.
        let _ = terminal::disable_raw_mode();
        let _ = execute!(io::stdout(), EnableLineWrap, LeaveAlternateScreen, Show);
    }
}

fn style(kind: Kind) -> ContentStyle {
    let style = ContentStyle::new();
    match kind {
        Kind::Head => style.reverse(),
        Kind::Title | Kind::Device => style.bold(),
        Kind::Group | Kind::Counters => style.dark_cyan(),
        Kind::Member | Kind::Text => style,
        Kind::Losing => style.dark_red(),
        Kind::Stopped => style.dark_yellow(),
        Kind::Dim => style.dim(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn rows(texts: [(Kind, &str); 3]) -> Vec<Row> {
        let row = |(kind, text): (Kind, &str)| Row {
            kind,
            text: text.to_owned(),
        };
        texts.map(row).to_vec()
    }

    fn written(display: &mut Display, size: (u16, u16), texts: [(Kind, &str); 3]) -> String {
        let mut written = Vec::new();
        let done = display.write_changes(size, rows(texts), &mut written);
        done.unwrap();
        String::from_utf8(written).unwrap()
    }

    /// The escape sequences are defined in ECMA-48: `H` places the cursor, `K` erases to the end of
    /// the row, `m` sets a style.
    #[test]
    fn only_changed_rows_are_written() {
        let mut display = Display::default();
        let mut look = [
            (Kind::Text, "12:00"),
            (Kind::Head, "PPS "),
            (Kind::Text, "q"),
        ];
        let first = written(&mut display, (5, 3), look);
        let all = "\u{1b}[1;1H12:00\u{1b}[2;1H\u{1b}[7mPPS \u{1b}[0m\u{1b}[K\u{1b}[3;1Hq\u{1b}[K";
        assert_eq!(first, all);
        assert_eq!(written(&mut display, (5, 3), look), "");
        look[0].1 = "12:1";
        let second = written(&mut display, (5, 3), look);
        assert_eq!(second, "\u{1b}[1;1H12:1\u{1b}[K");
        // The same text with another style.
        look[2].0 = Kind::Dim;
        let third = written(&mut display, (5, 3), look);
        assert_eq!(third, "\u{1b}[3;1H\u{1b}[2mq\u{1b}[0m\u{1b}[K");
        // All rows are written if the terminal was made wider, or wider and narrower again.
        let wider = written(&mut display, (6, 3), look);
        assert_eq!(wider.matches("\u{1b}[K").count(), 3, "{wider:?}");
        display.forget();
        assert_eq!(written(&mut display, (6, 3), look), wider);
    }

    #[test]
    fn after_a_panic_the_terminal_is_as_before_and_the_message_is_on_it() {
        const NAME: &str = "top::display::tests::\
            after_a_panic_the_terminal_is_as_before_and_the_message_is_on_it";
        if std::env::var_os("FANPCAP_PANICS").is_some() {
            let _display = Display::open().unwrap();
            panic!("while the screen is shown");
        }
        let own = std::env::current_exe().unwrap();
        let test = format!("{} --exact {NAME} --nocapture", own.display());
        let mut script = Command::new("script");
        script.args(["-qfc", &format!("stty -g; {test}; stty -g"), "/dev/null"]);
        script.env("FANPCAP_PANICS", "1").env("SHELL", "/bin/sh");
        let done = script.output().expect("script(1), of the package bsdutils");
        let shown = String::from_utf8(done.stdout).unwrap();
        let (before, rest) = shown.split_once("\r\n").unwrap();
        let after = rest.trim_end().rsplit("\r\n").next();
        assert_eq!(after, Some(before), "{shown:?}");
        let parts: Vec<&str> = rest.split("\u{1b}[?1049l").collect();
        let [screen, message] = parts[..] else {
            panic!("left {} times: {shown:?}", parts.len() - 1);
        };
        assert!(screen.contains("\u{1b}[?1049h"), "{shown:?}");
        let message = message
            .split_once("\u{1b}[?25h")
            .map(|(_, message)| message);
        assert!(
            message.is_some_and(|it| it.contains("while the screen is shown")),
            "{shown:?}"
        );
    }
}
