//! An exporting process of one observation domain: records into messages, numbered, with templates.

use std::time::Duration;

use crate::flow::{FLOW_4, FLOW_6, Flow};
use crate::message::{Header, Message};
use crate::record::{Packet, Selector, Statistics};
use crate::report::{self, HASH, STATISTICS, SYSTEMATIC};
use crate::section::{self, SECTION};
use crate::template::Template;

/// Over UDP, templates are sent again before a message if so much time has passed, or so many
/// messages were sent, since the last: a collector may have lost them, or may have begun later.
const RESEND_TIME: Duration = Duration::from_secs(20);
const RESEND_MESSAGES: u32 = 4096;

/// How packets are exported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Form {
    /// The beginning of the frame (`dataLinkFrameSection`): nfacctd, `GoFlow2`.
    #[default]
    Sections,
    /// A flow of one packet, made from its headers: for nfcapd and other collectors of flows. What
    /// is not IPv4 or IPv6 is left out and counted. Selectors and statistics are not exported:
    /// records of flows do not refer to them, and nfcapd counts each options record as a lost one.
    Flows,
}

/// How messages get to the collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// A datagram a message. What is lost on the way, the collector counts.
    Udp,
    /// A connection, which loses nothing. [`Exporter::restart`] begins the next one.
    Tcp,
}

/// What was exported so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Packets in messages, sent or not yet.
    pub packets: u64,
    /// Packets that are left out, as [`Form::Flows`] can't describe them.
    pub left_out: u64,
    /// Packets of which less than was captured fits into a message.
    pub cut: u64,
}

/// An exporting process of one observation domain.
///
/// Times are since the Unix epoch. A clock that is set back has templates sent at once.
#[derive(Debug)]
pub struct Exporter {
    domain: u32,
    form: Form,
    transport: Transport,
    message: Message,
    /// Data records in messages that were handed out, and in the one under construction.
    sequence: u32,
    pending: u32,
    /// When templates were sent last, and how many messages since.
    described: Option<(Duration, u32)>,
    totals: Totals,
}

impl Exporter {
    /// An exporter that has sent nothing yet. Each exporter of a cluster has an observation domain
    /// of its own: collectors count lost records by domain.
    pub fn new(domain: u32, form: Form, transport: Transport) -> Self {
        Self {
            domain,
            form,
            transport,
            message: Message::new(),
            sequence: 0,
            pending: 0,
            described: None,
            totals: Totals::default(),
        }
    }

    /// Exports a packet. Full messages go to `send`.
    pub fn packet(&mut self, now: Duration, packet: &Packet<'_>, send: &mut impl FnMut(&[u8])) {
        match self.form {
            Form::Sections => {
                let section = section::of(packet.frame);
                self.totals.cut += u64::from(section.len() < packet.frame.len());
                let bytes = self.room(now, &SECTION, section::len(section), send);
                section::encode(packet, section, bytes);
            }
            Form::Flows => {
                let Some(flow) = Flow::of(packet) else {
                    self.totals.left_out += 1;
                    return;
                };
                let template = flow.template();
                let bytes = self.room(now, template, template.fixed_len(), send);
                flow.encode(bytes);
            }
        }
        self.totals.packets += 1;
    }

    /// Exports how a bucket's packets are selected: for each bucket that the node has, with every
    /// topology, and over UDP again from time to time. Nothing as [`Form::Flows`].
    pub fn selector(&mut self, now: Duration, selector: &Selector, send: &mut impl FnMut(&[u8])) {
        if self.form == Form::Flows {
            return;
        }
        let template = report::template(selector);
        let bytes = self.room(now, template, template.fixed_len(), send);
        report::encode_selector(selector, bytes);
    }

    /// Exports what the node counted for a bucket. Nothing as [`Form::Flows`].
    pub fn statistics(
        &mut self,
        now: Duration,
        statistics: &Statistics,
        send: &mut impl FnMut(&[u8]),
    ) {
        if self.form == Form::Flows {
            return;
        }
        let bytes = self.room(now, &STATISTICS, STATISTICS.fixed_len(), send);
        report::encode_statistics(statistics, bytes);
    }

    /// Hands out the templates, in a message of their own.
    ///
    /// Over UDP the caller does so first, and then waits for some 100 ms: a collector with several
    /// threads may else look at the first records before it has looked at the templates, and drops
    /// them, as `GoFlow2` does.
    pub fn describe(&mut self, now: Duration, send: &mut impl FnMut(&[u8])) {
        let templates: &[&Template] = match self.form {
            Form::Sections => &[&SECTION, &SYSTEMATIC, &HASH, &STATISTICS],
            Form::Flows => &[&FLOW_4, &FLOW_6],
        };
        let mut message = Message::new();
        for template in templates {
            template.describe(&mut message);
        }
        message.finish(self.header(now), send);
        self.described = Some((now, 0));
    }

    /// Hands out the templates again if it is time to, though no record may wait.
    pub fn describe_again(&mut self, now: Duration, send: &mut impl FnMut(&[u8])) {
        if self.is_due(now) {
            self.describe(now, send);
        }
    }

    /// Hands out what waits for a message to be full. The caller does so at least once a second.
    pub fn flush(&mut self, now: Duration, send: &mut impl FnMut(&[u8])) {
        if self.message.is_empty() {
            return;
        }
        self.describe_again(now, send);
        let header = self.header(now);
        self.message.finish(header, send);
        self.sequence = self.sequence.wrapping_add(self.pending);
        self.pending = 0;
        if let Some((_, messages)) = &mut self.described {
            *messages = messages.saturating_add(1);
        }
    }

    /// Begins anew, on a new connection. What waited for a message to be full is in its first.
    pub fn restart(&mut self) {
        self.sequence = 0;
        self.described = None;
    }

    /// What was exported so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Where a record of `len` bytes goes: if the message has no room, it goes out first.
    fn room(
        &mut self,
        now: Duration,
        template: &Template,
        len: usize,
        send: &mut impl FnMut(&[u8]),
    ) -> &mut Vec<u8> {
        if !self.message.has_room(template.id, len) {
            self.flush(now, send);
        }
        self.pending += 1;
        self.message.within(template.id)
    }

    /// Whether templates go out before the next message.
    fn is_due(&self, now: Duration) -> bool {
        self.described.is_none_or(|(last, sent)| {
            let is_long = now < last || now - last >= RESEND_TIME || sent >= RESEND_MESSAGES;
            self.transport == Transport::Udp && is_long
        })
    }

    fn header(&self, now: Duration) -> Header {
        Header {
            // It wraps in 2106, as the protocol says.
            export_seconds: (now.as_secs() & u64::from(u32::MAX))
                .try_into()
                .unwrap_or(0),
            sequence: self.sequence,
            domain: self.domain,
        }
    }
}
