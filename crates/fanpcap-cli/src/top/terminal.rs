//! Takes snapshots, draws the screen and reads keys until the user or a signal ends the command.
//! Then restores the terminal.

use std::io;
use std::process::{self, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use crossterm::event::{self, Event, KeyEvent};
use crossterm::terminal;
use fanpcap_linux::wait::stop;
use fanpcap_snapshot::Source;

use super::display::{self, Display};
use super::rates::Rates;
use super::screen;
use super::state::State;
use super::view::View;

/// Longest delay until the loop detects a signal.
const GLANCE: Duration = Duration::from_millis(200);

/// Time that the loop has to end after a signal.
const GRACE: Duration = Duration::from_secs(1);

/// The view on the screen, and the time of the next snapshot.
struct Look {
    rates: Rates,
    view: View,
    due: Instant,
}

/// Shows the screen until the user or a signal ends it.
///
/// # Errors
/// The terminal or the kernel reports an error.
pub(crate) fn run(source: &mut Source, interval: Duration, state: State) -> Result<ExitCode> {
    let mut rates = Rates::default();
    let look = Look {
        view: rates.next(source.take()?),
        rates,
        due: Instant::now() + interval,
    };
    stop::on_signals().context("listening to signals")?;
    thread::spawn(end_if_stuck);
    let display = Display::open().context("preparing the terminal")?;
    show(display, source, interval, state, look)
}

/// Ends the process if a signal asked for its end but the loop does not return. crossterm's
/// `event::poll` (0.28) reads forever from a terminal that has hung up, and never returns.
fn end_if_stuck() {
    loop {
        thread::sleep(GLANCE);
        if let Some(signal) = stop::signal() {
            thread::sleep(GRACE);
            display::restore();
            process::exit(i32::from(status(signal)));
        }
    }
}

/// Exit status for a signal, as in a shell: 128 and the signal's number.
fn status(signal: u8) -> u8 {
    128_u8.saturating_add(signal)
}

/// Shows the screen until the end.
fn show(
    mut display: Display,
    source: &mut Source,
    interval: Duration,
    mut state: State,
    mut look: Look,
) -> Result<ExitCode> {
    loop {
        let size = terminal::size().context("the terminal's size")?;
        let rows = screen::draw(&look.view, &state, size);
        display.show(size, rows).context("drawing")?;
        let wait = look.due.saturating_duration_since(Instant::now());
        if event::poll(wait.min(GLANCE)).context("waiting for keys")? {
            match event::read().context("reading keys")? {
                Event::Key(key) => press(key, size, &look.view, &mut state),
                Event::Resize(..) => display.forget(),
                Event::FocusGained | Event::FocusLost | Event::Mouse(_) => {}
            }
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

/// Takes a snapshot. A paused view stays on the screen, but snapshots continue, so that the rates
/// are those of the last interval when the user resumes.
fn look_again(source: &mut Source, state: &State, look: &mut Look) -> Result<()> {
    let view = look.rates.next(source.take()?);
    if !state.paused {
        look.view = view;
    }
    Ok(())
}

fn press(key: KeyEvent, (width, height): (u16, u16), view: &View, state: &mut State) {
    let rows = screen::rows(view, state, usize::from(width)).len();
    state.press(key, rows.saturating_sub(screen::room(height, state)));
}

/// Columns of the terminal on standard output; `None` if standard output is not a terminal.
pub(crate) fn width() -> Option<u16> {
    if !io::IsTerminal::is_terminal(&io::stdout()) {
        return None;
    }
    let (width, _) = terminal::size().ok()?;
    Some(width).filter(|&width| width > 0)
}
