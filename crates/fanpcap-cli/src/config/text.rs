//! The text of `fanpcap config`.

use std::fmt::Write;

use fanpcap::overview::{Entry, Overview, mode_text};
use fanpcap_config::driver::Driver;
use fanpcap_config::settings::{GroupChoice, OnEngine, Plan, Steal};
use fanpcap_terminal::table;

use super::{group, ring};

/// Longer values and origins are truncated: a value may be a whole steering program.
const LONGEST: usize = 56;

/// The whole text. `other_library` returns the libpcap that applications load instead of fanpcap's.
pub(super) fn page(told: &Overview, other_library: fn() -> Option<String>) -> String {
    let mut page = String::new();
    let file = match &told.file {
        Some((path, true)) => format!("{path} (named by PCAP_CONFIG)"),
        Some((path, false)) => path.clone(),
        None => "none (there is no /etc/pcap.conf and no ~/.pcap.conf)".to_owned(),
    };
    line(&mut page, "config file", &file, None);
    match &told.devices {
        Ok(devices) if told.is_one => devices.iter().for_each(|it| one(&mut page, it)),
        Ok(devices) => list(&mut page, devices),
        Err(_) => {}
    }
    let mut errors = String::new();
    for report in told.errors() {
        let _ = write!(errors, "\n{report}\n");
    }
    if !errors.is_empty() {
        page += "\nwrong: applications get this error\n";
        page += &errors;
    }
    without_effect(&mut page, told);
    let plans = told.devices.iter().flatten();
    let mut plans = plans.filter_map(|device| device.explained.plan.as_ref().ok());
    let is_needed = plans.any(|plan| plan.choice.is_some() || plan.has_engine());
    if let Some(other) = is_needed.then(other_library).flatten() {
        let _ = writeln!(
            page,
            "\nThese settings do not apply to applications started from here, which load another \
             libpcap: {other}\nTo give them fanpcap's: eval \"$(fanpcap enable)\" in this shell, \
             or fanpcap enable --system"
        );
    }
    page
}

/// Writes one device, with one value a line.
fn one(page: &mut String, device: &Entry) {
    let explained = &device.explained;
    page.push('\n');
    let note = (!device.is_there).then_some("no network device has this name");
    line(page, "device", &explained.device, note);
    let Ok(plan) = &explained.plan else { return };
    let origins = &explained.origins;
    match &plan.choice {
        Some(joined) => {
            line(page, "group", &group(joined), Some(&joined.origin));
            let default = device.default.as_ref();
            let why = default.map_or("the default", |default| default.why.as_str());
            let from = origins.mode.as_deref().unwrap_or(why);
            // The origin may contain a steering program. The line already shows the program, so
            // only the variable's name is shown as its origin.
            let variable = from.split_once('=').map(|(name, _)| name);
            let program = joined.steering.as_ref();
            let program = program.filter(|_| origins.kernel_mode.is_none());
            let from = program.and(variable).unwrap_or(from);
            line(page, "mode", &mode(device, joined), Some(from));
            if let Some(name) = &joined.name {
                line(page, "member", name, origins.member.as_deref());
            }
        }
        None => line(
            page,
            "group",
            "none",
            Some("an application gets every packet"),
        ),
    }
    line(page, "read by", reader(plan), None);
    if let Some((origin, engine)) = &origins.driver {
        line(page, "driver", engine.name(), Some(origin));
    }
    if let Some(origin) = &plan.waits_if_gone {
        let wait = "wait; needs CAP_NET_RAW (tcpdump: -Z root)";
        line(page, "gone", wait, Some(origin));
    }
    if let Some(on_xdp) = &plan.on_engine {
        host(page, on_xdp);
    }
    if let Some(polled) = &plan.polled {
        if polled.engine.has_poller() {
            poller(page, polled.engine, &device.base);
        }
        sent_packets(page, polled.outgoing);
    }
    match plan.caplen {
        Some(caplen) => {
            let from = origins.caplen.as_deref();
            line(page, "caplen", &format!("{caplen} at most"), from);
        }
        None => line(page, "caplen", "what the application sets", None),
    }
    let from = origins.ring.as_deref();
    let from = from.unwrap_or("unless the application sets its size");
    line(page, "ring", &ring_text(plan), Some(from));
}

/// The mode as the user wrote it, and the steering program that stands for it on an engine.
fn mode(device: &Entry, joined: &GroupChoice) -> String {
    let text = mode_text(joined, device.default.as_ref());
    let written = device.explained.origins.kernel_mode;
    match written.filter(|_| joined.steering.is_some()) {
        Some(written) => format!("{written} ({text})"),
        None => text,
    }
}

/// The size of the ring.
fn ring_text(plan: &Plan) -> String {
    ring(plan).map_or_else(|| "libpcap's default".to_owned(), size)
}

/// Writes which packets the host gets from a device on the XDP engine, and whether the packets that
/// the host sends are captured.
fn host(page: &mut String, on_xdp: &OnEngine) {
    let steal = on_xdp.steal.name();
    let gets = match on_xdp.steal {
        Steal::No => "every packet",
        Steal::Yes | Steal::Force => "no packet of the device",
    };
    line(page, "host gets", gets, Some(&format!("steal = {steal}")));
    sent_packets(page, on_xdp.outgoing);
}

/// Writes whether the device has its poller, and what to do if it has none.
fn poller(page: &mut String, engine: Driver, device: &str) {
    match super::poller(engine, device) {
        Ok(pid) => line(page, "poller", &format!("process {pid}"), None),
        Err(why) => line(page, "poller", "not usable", Some(&why)),
    }
}

/// Writes whether the packets that the host sends are captured.
fn sent_packets(page: &mut String, outgoing: bool) {
    let (sent, outgoing) = match outgoing {
        true => ("captured too", "yes"),
        false => ("not captured", "no"),
    };
    line(
        page,
        "sent packets",
        sent,
        Some(&format!("outgoing = {outgoing}")),
    );
}

/// A ring's size, which is at least 1 MiB.
fn size(bytes: u64) -> String {
    match bytes % (1 << 20) {
        0 => format!("{} MiB", bytes >> 20),
        _ => format!("{bytes} bytes"),
    }
}

fn reader(plan: &Plan) -> &'static str {
    match plan.is_read_by_us() {
        true => "fanpcap",
        false => "the system's libpcap",
    }
}

fn line(page: &mut String, name: &str, value: &str, from: Option<&str>) {
    let value = short(value);
    let text = match from {
        Some(from) => format!("{name:<12} {value:<24} {}", short(from)),
        None => format!("{name:<12} {value}"),
    };
    let _ = writeln!(page, "{}", text.trim_end());
}

/// Writes all devices, one a line.
fn list(page: &mut String, devices: &[Entry]) {
    let head = ["DEVICE", "GROUP", "MODE", "READ BY", "CAPLEN", "FROM"].map(str::to_owned);
    let mut rows = vec![head.to_vec()];
    rows.extend(devices.iter().map(row));
    page.push('\n');
    for line in table::lines(&rows, |_| true) {
        let _ = writeln!(page, "{}", line.trim_end());
    }
}

fn row(device: &Entry) -> Vec<String> {
    let explained = &device.explained;
    let unknown = || "-".to_owned();
    let origins = &explained.origins;
    let Ok(plan) = &explained.plan else {
        let what = "an error, see below".to_owned();
        let device = explained.device.clone();
        return vec![device, unknown(), what, unknown(), unknown(), String::new()];
    };
    let joined = plan.choice.as_ref();
    let mut from = Vec::new();
    let driver = origins.driver.as_ref().map(|(origin, _)| origin);
    let all = [
        origins.group.as_ref(),
        origins.mode.as_ref(),
        origins.caplen.as_ref(),
        origins.ring.as_ref(),
        driver,
    ];
    for origin in all.into_iter().flatten() {
        let origin = short(origin);
        if !from.contains(&origin) {
            from.push(origin);
        }
    }
    vec![
        explained.device.clone(),
        joined.map_or_else(unknown, group),
        joined.map_or_else(unknown, |joined| short(&mode(device, joined))),
        if plan.is_read_by_us() {
            "fanpcap"
        } else {
            "libpcap"
        }
        .to_owned(),
        plan.caplen
            .map_or_else(unknown, |caplen| caplen.to_string()),
        from.join(", "),
    ]
}

fn without_effect(page: &mut String, told: &Overview) {
    let ignored = told.ignored();
    if ignored.is_empty() {
        return;
    }
    *page += "\nset, and without effect:\n";
    for one in ignored {
        let setting = short(&one.setting);
        let _ = writeln!(page, "  {setting:<28} {}: {}", one.place, one.why);
        if let Some(hint) = &one.hint {
            let _ = writeln!(page, "  {:<28} {hint}", "");
        }
    }
}

/// The first line of `text`, cut to length, without characters that act on a terminal.
fn short(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let clean = |c: char| if c.is_control() { '?' } else { c };
    let mut letters = line.chars().map(clean);
    let mut short: String = letters.by_ref().take(LONGEST).collect();
    if letters.next().is_some() {
        short.push('…');
    }
    short
}
