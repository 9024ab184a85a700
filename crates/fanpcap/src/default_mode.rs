//! The mode of a member that asks for no mode: the mode of its group. The first member of a group
//! gets `flow`, or `hash` where `flow` can't be loaded.

use crate::handle::Handle;
use fanpcap_config::fanout::Script;
use fanpcap_config::mode::{Mode, ModeKind};
use fanpcap_config::settings::{Group, GroupChoice};
use fanpcap_config::steering::Steering;
use fanpcap_group::join::{DevicesError, JoinError, ProgramError, Runs, Titled};
use fanpcap_group::record::NoFlow;
use std::sync::Arc;

/// How often a join is tried at most. A try fails if another process changes the group's mode
/// between look-up and join.
const LOOKS: u32 = 4;

/// Whether a group can have several devices. A group in a kernel mode has one device, because a
/// group of the kernel has only one device. Sticky and balanced groups have one device as well.
pub(crate) fn spans_devices(choice: &GroupChoice) -> bool {
    let steering = choice.steering.as_ref();
    steering.is_some_and(|steering| !steering.is_of_one_device())
}

/// Joins a group, in the mode that was asked for or the default mode. `together` is as for
/// [`Handle::join`]. A group has the same mode on all its devices: the mode that it has on the
/// first device.
pub(crate) fn join<H: Handle>(p: H, choice: &GroupChoice, together: &[H]) -> Result<(), JoinError> {
    let attempt = |p: H, choice: &GroupChoice| join_as(p, choice, together);
    if let Some(first) = together.first().filter(|first| **first != p) {
        let steering = first.steered().and_then(|steered| steered.steering());
        return match first.group() {
            Some(has) if choice.is_default => attempt(p, &choice.in_mode(has.mode, steering)),
            _ => attempt(p, choice),
        };
    }
    let mut joined = with_mode(p, choice, &attempt);
    for _ in 1..LOOKS {
        match &joined {
            Err(error) if choice.is_default && is_other(error) => {
                joined = with_mode(p, choice, &attempt);
            }
            _ => break,
        }
    }
    joined
}

/// Joins a group in a mode. Fails if the group can have only one device and the handle has several.
fn join_as<H: Handle>(p: H, choice: &GroupChoice, together: &[H]) -> Result<(), JoinError> {
    match (choice.group, together.get(1)) {
        _ if spans_devices(choice) => p.join(choice, together),
        (Group::Number(group), Some(second)) => Err(one_device(group, choice, *second)),
        _ => p.join(choice, &[]),
    }
}

/// The error for a group that can have only one device, when the handle `second` is on a further
/// device.
pub(crate) fn one_device<H: Handle>(group: u16, choice: &GroupChoice, second: H) -> JoinError {
    let request = second.request();
    let second = request.map_or_else(String::new, |it| it.system_name().to_owned());
    let mode = choice.shown_mode();
    let error = DevicesError::One {
        group,
        mode,
        second,
    };
    error.into()
}

/// Checks whether [`join`] would fail as the group is now.
pub(crate) fn foresee<H: Handle>(p: H, choice: &GroupChoice) -> Result<(), JoinError> {
    with_mode(p, choice, &|p, choice| p.foresee(choice))
}

/// Whether the group's mode or steering program is not the one that the look-up has found.
fn is_other(error: &JoinError) -> bool {
    matches!(
        error,
        JoinError::OtherMode { .. }
            | JoinError::Program(ProgramError::Other { .. } | ProgramError::Founded { .. })
    )
}

type Attempt<'a, H> = &'a dyn Fn(H, &GroupChoice) -> Result<(), JoinError>;

/// Calls `attempt` with the mode that the member gets in the group as it is now.
fn with_mode<H: Handle>(
    p: H,
    asked: &GroupChoice,
    attempt: Attempt<'_, H>,
) -> Result<(), JoinError> {
    let runs = match asked.group {
        _ if !asked.is_default => return attempt(p, asked),
        Group::Number(group) => p.runs(group),
        Group::New => Runs::Nothing,
    };
    let is_on_engine = asked.is_on_engine();
    match runs {
        // Engines other than packet sockets have only steering programs, no kernel modes.
        Runs::Nothing | Runs::Kernel(_) if is_on_engine => attempt(p, asked),
        Runs::Nothing => match attempt(p, asked) {
            Err(error) if error.is_of_loading() => {
                attempt(p, &asked.in_mode(ModeKind::Hash.into(), None))?;
                p.note_no_flow(why_no_flow(&error));
                Ok(())
            }
            done => done,
        },
        Runs::Kernel(mode) => with_options(p, asked, mode, attempt),
        Runs::Program(mode, running) => {
            let own = running.and_then(|running| of_group(p, asked, &running));
            let steering = own.or_else(|| asked.steering.clone());
            attempt(p, &asked.in_mode(mode, steering))
        }
    }
}

/// Why `flow` can't be loaded.
fn why_no_flow(error: &JoinError) -> NoFlow {
    let JoinError::Program(error) = error else {
        return NoFlow::NotLoaded;
    };
    if matches!(error, ProgramError::NotPermitted(_)) {
        NoFlow::NotPermitted
    } else if matches!(
        error,
        ProgramError::NotEthernet { .. } | ProgramError::AllDevices
    ) {
        NoFlow::NotEthernet
    } else {
        NoFlow::NotLoaded
    }
}

/// Attempts a kernel mode, then the same mode with each combination of the mode's options, because
/// packet diag does not report the options.
fn with_options<H: Handle>(
    p: H,
    asked: &GroupChoice,
    mode: Mode,
    attempt: Attempt<'_, H>,
) -> Result<(), JoinError> {
    let first = attempt(p, &asked.in_mode(mode, None));
    if !first.as_ref().is_err_and(is_other) {
        return first;
    }
    let is_rollover = mode.kind == ModeKind::Rollover;
    for (defrag, rollover) in [(true, false), (false, true), (true, true)] {
        let other = Mode {
            defrag,
            rollover,
            ..mode
        };
        if is_rollover && rollover {
            continue;
        }
        if let Ok(()) = attempt(p, &asked.in_mode(other, None)) {
            return Ok(());
        }
    }
    first
}

/// Finds the group's steering program: the default, the one named by the title, or the text that
/// the members publish.
fn of_group<H: Handle>(p: H, asked: &GroupChoice, running: &Titled) -> Option<Arc<Steering>> {
    let is_it = |steering: &Arc<Steering>| steering.digest() == running.digest;
    let default = asked.steering.clone().filter(is_it);
    let compiled = |script: &Script| {
        let steering = match asked.is_on_engine() {
            true => Steering::compile_for_engine(script, p.compiler()),
            false => Steering::compile(script, p.compiler()),
        };
        steering.ok().map(Arc::new).filter(is_it)
    };
    let by_members = || match asked.group {
        Group::Number(group) => {
            let text = p.program_text(group)?;
            compiled(&Script::of_title(&text))
        }
        Group::New => None,
    };
    let by_title = || compiled(&Script::of_title(&running.title));
    default.or_else(by_title).or_else(by_members)
}
