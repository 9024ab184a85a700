//! Makes a handle a member of a group of a poller.

use crate::handles;
use crate::pcap_handle::PcapHandle;
use crate::polled::Polled;
use fanpcap::handle::{Joined, Notes};
use fanpcap::request::Request;
use fanpcap_config::mode::ModeKind;
use fanpcap_config::settings::{Group, GroupChoice, Polled as Asked};
use fanpcap_engine::{Ask, EnterGroup, EnterRequest, Whole};
use fanpcap_group::join::{EngineError, JoinError};
use std::sync::Arc;
use std::time::Duration;

/// How long to wait until the poller answers a new handle.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// A handle that was a poller's member does not wait here: the application is reading, and calls
/// pcap_breakloop(). The handle keeps the connection, and looks for the answer again.
const AGAIN_WITHIN: Duration = Duration::ZERO;

/// Enters a group of the poller of the handle's device, unless the handle is in one. Returns the
/// poller's number.
pub(crate) fn enter(
    p: PcapHandle,
    request: &Request,
    notes: Notes,
    choice: Option<&GroupChoice>,
    asked: &Asked,
) -> Result<u64, JoinError> {
    if let Some(polled) = handles::polled(p) {
        return Ok(polled.io.poller());
    }
    let engine = fanpcap_engines::polled(asked.engine.name()).ok_or(JoinError::NotPacket)?;
    let steering = choice.filter(|choice| !choice.is_default);
    let steering = steering.and_then(|choice| choice.steering.as_ref());
    let weight = choice.and_then(|choice| choice.weight).unwrap_or(1);
    let class = choice.map_or(0, |choice| choice.class);
    let away = handles::away(p).filter(|away| away.is_away());
    let mut kept = away.as_ref().and_then(|away| away.take_asked());
    let former = away.as_ref().and_then(|away| away.former());
    let request = EnterRequest {
        device: request.system_name(),
        group: group(choice),
        steering: steering.map(|steering| (steering.program(), steering.options())),
        former: former.as_deref().map(|(text, options)| (&**text, *options)),
        name: choice.and_then(|choice| choice.name.as_deref()),
        weight,
        class,
        ask: ask(p, notes, asked.outgoing),
        limit: match away {
            Some(_) => AGAIN_WITHIN,
            None => ANSWERS_WITHIN,
        },
        whole: (notes.whole > 0).then_some(Whole {
            number: notes.whole,
            poller: notes.poller,
        }),
    };
    let io = engine.enter(&request, &mut kept);
    if let Some(away) = away {
        away.keep_asked(kept);
    }
    let io = io.map_err(EngineError::from)?;
    let joined = Joined {
        group: io.group().unwrap_or_default(),
        mode: choice.map_or(ModeKind::Program.into(), |choice| choice.mode),
        weight: Some(weight),
        class,
    };
    let poller = io.poller();
    let polled = Arc::new(Polled::new(io, joined));
    drop(handles::with_new(p, |entry| entry.polled.replace(polled)));
    Ok(poller)
}

fn group(choice: Option<&GroupChoice>) -> EnterGroup {
    choice.map_or(EnterGroup::Own, |choice| match choice.group {
        Group::Number(number) => EnterGroup::Number(number),
        Group::New => EnterGroup::New,
    })
}

/// An activated handle's requirements for its rings.
pub(crate) fn ask(p: PcapHandle, notes: Notes, outgoing: bool) -> Ask {
    Ask {
        snaplen: u32::try_from(p.snapshot()).unwrap_or(u32::MAX),
        bytes: notes.buffer_size.and_then(|it| u32::try_from(it).ok()),
        outgoing,
    }
}
