//! The exporting process of an observation domain: puts records into messages, and sends templates.

use std::time::Duration;

use crate::flow::{FLOW_4, FLOW_6, Flow};
use crate::message::{Header, Message};
use crate::record::{Packet, Selector, Statistics};
use crate::report::{self, HASH, STATISTICS, SYSTEMATIC};
use crate::section::{self, SECTION};
use crate::template::Template;

/// Over UDP, templates are sent again before a message if this much time has passed since they were
/// last sent, or if this many messages were sent since then. The collector may have lost the
/// templates, or may have started later.
const RESEND_TIME: Duration = Duration::from_secs(20);
const RESEND_MESSAGES: u32 = 4096;

/// How packets are exported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Form {
    /// The beginning of the frame (`dataLinkFrameSection`), for nfacctd and `GoFlow2`.
    #[default]
    Sections,
    /// A flow of one packet, made from the packet's headers: for nfcapd and other collectors of
    /// flows. Packets that are neither IPv4 nor IPv6 are left out and counted. Selectors and
    /// statistics are not exported, because records of flows do not refer to them. In addition,
    /// nfcapd counts each options record as a lost record.
    Flows,
}

/// How messages get to the collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Each message is a datagram. The collector counts messages that are lost on the way.
    Udp,
    /// TCP, which loses no message. Call [`Exporter::restart`] when a new connection begins.
    Tcp,
}

/// How many packets were exported, left out and shortened so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Packets in messages. The last messages may not be sent yet.
    pub packets: u64,
    /// Packets that were left out, because [`Form::Flows`] can't describe them.
    pub left_out: u64,
    /// Packets that were shortened, because the captured bytes did not fit into a message.
    pub cut: u64,
}

/// An exporting process of one observation domain.
///
/// All times are since the Unix epoch. If the clock is set back, templates are sent at once.
#[derive(Debug)]
pub struct Exporter {
    domain: u32,
    form: Form,
    transport: Transport,
    message: Message,
    /// How many data records were put into messages, including the message under construction.
    sequence: u32,
    pending: u32,
    /// When templates were last sent, and how many messages were sent since then.
    described: Option<(Duration, u32)>,
    totals: Totals,
}

impl Exporter {
    /// An exporter that has sent nothing yet. Each exporter of a cluster must have its own
    /// observation domain, because collectors count lost records for each domain.
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

    /// Exports how a bucket's packets are selected. Does nothing with [`Form::Flows`]. Call this
    /// method for each bucket of the node when the topology changes; over UDP, also from time to
    /// time.
    pub fn selector(&mut self, now: Duration, selector: &Selector, send: &mut impl FnMut(&[u8])) {
        if self.form == Form::Flows {
            return;
        }
        let template = report::template(selector);
        let bytes = self.room(now, template, template.fixed_len(), send);
        report::encode_selector(selector, bytes);
    }

    /// Exports what the node counted for a bucket. Does nothing with [`Form::Flows`].
    pub fn statistics(&mut self, now: Duration, counts: &Statistics, send: &mut impl FnMut(&[u8])) {
        if self.form == Form::Flows {
            return;
        }
        let bytes = self.room(now, &STATISTICS, STATISTICS.fixed_len(), send);
        report::encode_statistics(counts, bytes);
    }

    /// Passes the templates to `send`, in a message of their own.
    ///
    /// Over UDP, call this method first, and then wait for about 100 ms. Otherwise a collector with
    /// several threads may read the first records before it has read the templates. Such a
    /// collector, for example `GoFlow2`, drops records that it reads before their templates.
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

    /// If the templates are due, passes them to `send`. This is needed while no packets come.
    pub fn describe_again(&mut self, now: Duration, send: &mut impl FnMut(&[u8])) {
        if self.is_due(now) {
            self.describe(now, send);
        }
    }

    /// Passes the unfinished message to `send`. Call this method at least once a second.
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

    /// Begins again on a new connection. The first message on this connection also carries the
    /// records that were not sent before.
    pub fn restart(&mut self) {
        self.sequence = 0;
        self.described = None;
    }

    /// Returns how many packets were exported, left out and shortened so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns where a record of `len` bytes is written. If the message is full, sends it first.
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

    /// Whether templates must be sent before the next message.
    fn is_due(&self, now: Duration) -> bool {
        self.described.is_none_or(|(last, sent)| {
            let is_long = now < last || now - last >= RESEND_TIME || sent >= RESEND_MESSAGES;
            self.transport == Transport::Udp && is_long
        })
    }

    fn header(&self, now: Duration) -> Header {
        Header {
            // The time wraps in 2106, as the protocol specifies.
            export_seconds: (now.as_secs() & u64::from(u32::MAX))
                .try_into()
                .unwrap_or(0),
            sequence: self.sequence,
            domain: self.domain,
        }
    }
}
