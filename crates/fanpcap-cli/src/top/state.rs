//! The screen's state, and what the keys do to it.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::order::Column;

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
    /// Does what a key says. `furthest` is how many rows can be scrolled away before the last one
    /// shows.
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

/// Rows that PageUp and PageDown go.
const PAGE: usize = 10;
