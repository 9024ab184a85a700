//! The terminal: looks, draws and reads keys until the user or a signal ends it, and is left as it
//! was found.

use std::io;
use std::process::{self, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fanpcap_linux::wait::stop;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};

use super::rates::Rates;
use super::screen;
use super::state::State;
use super::view::View;
use crate::snapshot::Source;

/// How long a signal may wait to be seen.
const GLANCE: Duration = Duration::from_millis(200);

/// How long the loop has to see one.
const GRACE: Duration = Duration::from_secs(1);

/// Gives the terminal back, whatever ends the screen; ratatui's own hook does so on panic.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        // Fails when the terminal is gone.
        let _ = ratatui::try_restore();
    }
}

/// What is on the screen, and when it was looked for.
struct Look {
    rates: Rates,
    view: View,
    due: Instant,
}

/// Shows the screen.
///
/// # Errors
/// The terminal or the kernel does not answer.
pub(crate) fn run(source: &mut Source, interval: Duration, state: State) -> Result<ExitCode> {
    let mut rates = Rates::default();
    let look = Look {
        view: rates.next(source.take()?),
        rates,
        due: Instant::now() + interval,
    };
    stop::on_signals().context("listening to signals")?;
    thread::spawn(end_if_stuck);
    let restored = Restored;
    let mut terminal = ratatui::try_init().context("preparing the terminal")?;
    let ended = show(&mut terminal, source, interval, state, look);
    drop(restored);
    ended
}

/// Ends the process when a signal asked for it and the loop does not: crossterm's `event::poll`
/// (0.28) reads a terminal that has hung up again and again, and never returns.
fn end_if_stuck() {
    loop {
        thread::sleep(GLANCE);
        if let Some(signal) = stop::signal() {
            thread::sleep(GRACE);
            drop(Restored);
            process::exit(i32::from(status(signal)));
        }
    }
}

/// A signal's exit status, as a shell has it: 128 and its number.
fn status(signal: u8) -> u8 {
    128_u8.saturating_add(signal)
}

/// Until it ends.
fn show(
    terminal: &mut DefaultTerminal,
    source: &mut Source,
    interval: Duration,
    mut state: State,
    mut look: Look,
) -> Result<ExitCode> {
    loop {
        terminal
            .draw(|frame| screen::render(&look.view, &state, frame))
            .context("drawing")?;
        let wait = look.due.saturating_duration_since(Instant::now());
        if event::poll(wait.min(GLANCE)).context("waiting for keys")? {
            read_key(terminal, &look.view, &mut state)?;
        }
        if let Some(signal) = stop::signal() {
            return Ok(ExitCode::from(status(signal)));
        }
        if state.quit {
            return Ok(ExitCode::SUCCESS);
        }
        if Instant::now() >= look.due {
            look.due = Instant::now() + interval;
            look_again(source, &state, &mut look)?;
        }
    }
}

/// A held view stays. Looks go on, so that rates are of the last interval when it is let go.
fn look_again(source: &mut Source, state: &State, look: &mut Look) -> Result<()> {
    let view = look.rates.next(source.take()?);
    if !state.paused {
        look.view = view;
    }
    Ok(())
}

fn read_key(terminal: &DefaultTerminal, view: &View, state: &mut State) -> Result<()> {
    let event = event::read().context("reading keys")?;
    if let Event::Key(key) = event {
        let size = terminal.size().context("the terminal's size")?;
        let rows = screen::rows(view, state, usize::from(size.width)).len();
        state.press(key, rows.saturating_sub(screen::room(size.height, state)));
    }
    Ok(())
}

/// Columns of the terminal that standard output is.
pub(crate) fn width() -> Option<u16> {
    if !io::IsTerminal::is_terminal(&io::stdout()) {
        return None;
    }
    let (width, _) = ratatui::crossterm::terminal::size().ok()?;
    Some(width).filter(|&width| width > 0)
}
