//! The contents of rows at each width, and names with special characters.

use super::*;
use crate::top::{fixture, order};

#[test]
fn what_matters_is_there_at_any_width() {
    for width in [54, 60, 72, 80, 100, 132, 300] {
        let head = head(width).text;
        for title in ["PPS", "SHARE", "DROP/S", "DROPPED", "BACKLOG"] {
            assert!(head.contains(title), "{width}: {head}");
        }
        let lines = rows(&fixture::view(), width, false);
        let widths = lines.iter().map(|row| row.text.chars().count());
        assert!(widths.clone().all(|len| len <= width));
        assert!(widths.clone().min() == widths.max());
    }
}

#[test]
fn in_little_room_columns_go_before_the_name() {
    for width in [12, 20, 28, 36, 44] {
        let lines = rows(&fixture::view(), width, false);
        assert!(lines.iter().all(|row| row.text.chars().count() <= width));
        assert!(lines.iter().any(|row| row.text.starts_with("  4711 tcpd")));
        assert_eq!(head(width).text.contains("PPS"), width >= 20);
    }
}

#[test]
fn wide_characters_take_two_columns_and_none_turns_the_line() {
    assert_eq!(cut("抓包程序", 8), "抓包程序");
    assert_eq!(cut("抓包程序", 6), "抓包…");
    assert_eq!(cut("a\u{202e}b\u{2066}", 9), "a?b?");
    let mut view = fixture::view();
    view.devices[0].groups[0].members[0].program = Some("抓包程序".to_owned());
    let lines = rows(&view, 80, false);
    assert!(
        lines
            .iter()
            .all(|row| width(&row.text) == width(&lines[0].text))
    );
}

#[test]
fn sockets_of_one_process_are_told_apart() {
    let mut view = fixture::view();
    view.devices[0].groups[0].members[1].pid = Some(4711);
    let text: Vec<String> = rows(&view, 80, false)
        .into_iter()
        .map(|row| row.text)
        .collect();
    for socket in ["4711 tcpdump socket 11 ", "4711 tcpdump socket 12 "] {
        assert!(text.iter().any(|row| row.contains(socket)), "{text:?}");
    }
    assert!(text.iter().any(|row| row.starts_with("  4713 tcpdump   ")));
}

#[test]
fn a_group_whose_members_are_filtered_says_so() {
    let view = order::filter(fixture::view(), "4713");
    let rows = rows(&view, 80, false);
    assert!(
        rows[1].text.starts_with(" group 7 (1 of 4 shown) ha"),
        "{}",
        rows[1].text
    );
    assert_eq!(view.devices[0].groups[0].members_total, 4);
}

#[test]
fn a_long_steering_program_hides_neither_members_nor_engine() {
    let mut view = fixture::view();
    view.devices[0].groups[0].mode = "on xdp: main = do when (has_port 53) (classify 2)".to_owned();
    let rows = rows(&view, 80, false);
    let text = &rows[1].text;
    assert!(text.starts_with(" group 7 (2 of 4) on xdp: …"), "{text}");
}

#[test]
fn members_that_wait_for_their_device_are_one_row() {
    let mut view = fixture::view();
    let device = &mut view.devices[0];
    device.device = "gone".to_owned();
    let awaited = |name: &str, waiting_members_total| AwaitedDevice {
        device: name.to_owned(),
        waiting_members_total,
    };
    device.awaited_devices = vec![awaited("eth0", 2)];
    (device.received_bits_per_second, device.groups) = (None, Vec::new());
    let mut waiting = device.sockets[0].clone();
    waiting.waits_for_device = true;
    device.sockets = vec![waiting.clone(), waiting];
    let names = |view: &_| -> Vec<String> {
        let rows = rows(view, 80, false).into_iter();
        rows.map(|row| row.text.chars().take(27).collect())
            .collect()
    };
    let shown = names(&view);
    assert_eq!(shown[0], "eth0 (gone): 2 members wait");
    view.devices[0].sockets[1].waits_for_device = false;
    view.devices[0].awaited_devices = vec![awaited("eth0", 1), awaited("eth1", 1)];
    let more = names(&view);
    assert_eq!(more.len(), shown.len() + 3, "{more:?}");
    assert!(
        more[0].starts_with("eth0 (gone): 1 member waits"),
        "{more:?}"
    );
    assert!(
        more[1].starts_with("eth1 (gone): 1 member waits"),
        "{more:?}"
    );
    assert!(more[2].starts_with(" no group (1) "), "{more:?}");
}

#[test]
fn what_a_program_has_counted_stands_below_its_group() {
    let mut view = fixture::view();
    let shown = rows(&view, 80, false);
    assert_eq!(shown[2].text.trim_end(), "  counters 0: 36, 2: -9");
    assert_eq!(shown[2].kind, Kind::Counters);
    view.devices[0].groups[0].program_counters_age_seconds = Some(12.3);
    let text = &rows(&view, 80, false)[2].text;
    assert_eq!(text.trim_end(), "  counters 12 s ago: 0: 36, 2: -9");
}

#[test]
fn a_program_can_not_write_to_the_terminal() {
    let mut view = fixture::view();
    view.devices[0].groups[0].members[0].program = Some("\u{1b}[2Jx".to_owned());
    let rows = rows(&view, 80, false);
    assert!(rows.iter().all(|row| !row.text.contains('\u{1b}')));
    assert!(rows.iter().any(|row| row.text.contains("?[2Jx")));
}

#[test]
fn long_names_are_cut_with_a_mark() {
    assert_eq!(cut("tcpdump", 7), "tcpdump");
    assert_eq!(cut("tcpdumps", 7), "tcpdum…");
}

#[test]
fn collapsed_groups_stay_without_their_members() {
    let all = rows(&fixture::view(), 80, false);
    let few = rows(&fixture::view(), 80, true);
    assert!(all.len() > few.len());
    assert!(
        few.iter()
            .all(|row| !matches!(row.kind, Kind::Member | Kind::Dim))
    );
}

#[test]
fn what_loses_is_marked_up_to_its_device() {
    let rows = rows(&fixture::view(), 80, false);
    let kind_of = |name: &str| {
        let mut found = rows.iter().filter(|row| row.text.starts_with(name));
        found.next().map(|row| (row.kind, row.text.contains(" !")))
    };
    for name in ["eth0 ", " group 7 ", "  4713 "] {
        assert_eq!(kind_of(name), Some((Kind::Losing, true)), "{name}");
    }
    assert_eq!(kind_of("  4711 "), Some((Kind::Member, false)));
    assert_eq!(kind_of(" group 42 "), Some((Kind::Group, false)));
}

#[test]
fn a_device_that_the_host_may_need_says_so_below_its_name() {
    let mut view = fixture::view();
    view.devices[0].stolen_from_host = Some("it has an IP address");
    let shown = &rows(&view, 100, false)[1];
    assert_eq!(
        shown.text.trim_end(),
        " stolen from the host, which may need its packets: it has an IP address"
    );
    assert_eq!(shown.kind, Kind::Losing);
}

#[test]
fn a_rate_over_another_time_has_a_mark() {
    let mut view = fixture::view();
    let group = &mut view.devices[0].groups[0];
    group.members[0].rate_is_rough = true;
    group.members_with_rough_rates = 1;
    let text: Vec<String> = rows(&view, 80, false)
        .into_iter()
        .map(|row| row.text)
        .collect();
    assert!(text[1].contains(" ~712k "), "{text:?}");
    assert!(text[3].contains(" ~612k "), "{text:?}");
    assert!(!text[4].contains('~'), "{text:?}");
}

#[test]
fn a_member_that_nobody_reads_is_named_and_marked() {
    let mut view = fixture::view();
    let group = &mut view.devices[0].groups[0];
    group.members[2].is_unread = true;
    group.members_unread = 1;
    let rows = rows(&view, 80, false);
    let found = |part: &str| rows.iter().find(|row| row.text.contains(part));
    let member = found(" unread ").unwrap();
    assert!(member.kind == Kind::Losing && member.text.contains("4713 tcpdump"));
    assert!(found(" group 7 (1 of 4 unread) ").is_some(), "{rows:?}");
}

#[test]
fn a_group_on_xdp_tells_what_came_to_it_and_its_members_classes() {
    let mut view = fixture::between(&fixture::before(), &fixture::after_on_xdp());
    let shown = rows(&view, 132, false);
    assert_eq!(
        shown[3].text.trim_end(),
        "  offered 3M packets (2.90M in rings, 90k rejected by members' filters, \
         1000 for full rings, 9000 dropped by the steering program)"
    );
    assert!(shown[4].text.starts_with("  4711 tcpdump class 2 "));
    if let Some(ledger) = &mut view.devices[0].groups[0].ledger {
        ledger.seconds_ago = 12.3;
    }
    let text = &rows(&view, 132, false)[3].text;
    assert!(
        text.starts_with("  offered 12 s ago: 3M packets ("),
        "{text}"
    );
    let view = order::filter(view, "class 2");
    assert_eq!(view.devices[0].groups[0].members.len(), 1);
}

#[test]
fn a_stopped_member_is_named_with_what_continues_it() {
    let mut view = fixture::view();
    let group = &mut view.devices[0].groups[0];
    group.members[0].is_stopped = true;
    group.members_stopped = 1;
    let rows = rows(&view, 80, false);
    assert!(rows[1].text.starts_with(" group 7 (1 of 4 stopped) "));
    let kinds = |start: &str| {
        let found = rows.iter().find(|row| row.text.starts_with(start));
        found.map(|row| (row.kind, row.text.contains("stopped")))
    };
    assert_eq!(kinds("  4711 tcpdump   "), Some((Kind::Stopped, true)));
    let line = "  4711 tcpdump is stopped by a signal or a debugger: kill -CONT 4711 ";
    assert_eq!(kinds(line), Some((Kind::Stopped, true)));
}
