//! The state of the screen, and the effect of keys on it.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::order::Column;

/// The user's choices.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// The requested device.
    pub(crate) device: Option<String>,
    pub(crate) sort: Column,
    /// Reverse order.
    pub(crate) reverse: bool,
    /// Only rows that match this text are shown.
    pub(crate) filter: String,
    /// The previous filter, while the user types a new one.
    pub(crate) typing: Option<String>,
    /// The view is paused.
    pub(crate) paused: bool,
    /// Members are hidden.
    pub(crate) collapsed: bool,
    /// The help is shown.
    pub(crate) help: bool,
    /// Number of rows scrolled off the top.
    pub(crate) scroll: usize,
    /// The user has quit.
    pub(crate) quit: bool,
}

impl State {
    /// Handles a key. `furthest` is the scroll position that shows the last row.
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
            KeyCode::Esc => {
                self.filter.clear();
                self.scroll = 0;
            }
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

/// Number of rows that PageUp and PageDown scroll.
const PAGE: usize = 10;
