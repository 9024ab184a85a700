//! The screen at 80 by 24 as text, and the effect of keys on the state. `cargo insta review` or
//! `INSTA_UPDATE=always` accepts an intended change of a picture. With `CI` set, insta writes no
//! picture.

use super::*;
use crate::top::fixture;
use crate::top::order::Column;
use crate::top::rates::Rates;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The screen as text, each line in quotes.
fn picture(view: &View, state: &State, size: (u16, u16)) -> String {
    let rows = draw(view, state, size);
    assert_eq!(rows.len(), usize::from(size.1));
    let width = usize::from(size.0);
    let quoted = |row: &Row| {
        assert!(table::width(&row.text) <= width, "{row:?}");
        format!("\"{:width$}\"\n", row.text)
    };
    rows.iter().map(quoted).collect()
}

const SIZE: (u16, u16) = (80, 24);

#[test]
fn normal() {
    insta::assert_snapshot!(picture(&fixture::view(), &State::default(), SIZE));
}

#[test]
fn wide() {
    let state = State {
        sort: Column::Dropped,
        ..State::default()
    };
    insta::assert_snapshot!(picture(&fixture::view(), &state, (132, 18)));
}

#[test]
fn empty() {
    let view = fixture::between(&fixture::look(100), &fixture::look(101));
    insta::assert_snapshot!(picture(&view, &State::default(), SIZE));
}

#[test]
fn filter_typed() {
    let mut state = State::default();
    for letter in "/tcpd".chars() {
        state.press(KeyCode::Char(letter).into(), 0);
    }
    insta::assert_snapshot!(picture(&fixture::view(), &state, SIZE));
}

#[test]
fn help() {
    let mut state = State::default();
    state.press(KeyCode::Char('h').into(), 0);
    insta::assert_snapshot!(picture(&fixture::view(), &state, SIZE));
}

#[test]
fn paused_and_collapsed() {
    let mut state = State::default();
    state.press(KeyCode::Char(' ').into(), 0);
    state.press(KeyCode::Char('c').into(), 0);
    insta::assert_snapshot!(picture(&fixture::view(), &state, SIZE));
}

/// With `INSTA_UPDATE` or `INSTA_FORCE_PASS` set, insta would accept a changed picture, or would
/// write it over the expected picture.
#[test]
fn ci_takes_no_pictures() {
    let set = |name: &str| {
        std::env::var(name).is_ok_and(|value| !["", "no", "0"].contains(&value.as_str()))
    };
    assert!(!set("CI") || !set("INSTA_UPDATE") && !set("INSTA_FORCE_PASS"));
}

#[test]
fn a_device_that_is_gone_is_named() {
    let view = Rates::default().next(fixture::look(100));
    let state = State {
        device: Some("eth9".to_owned()),
        ..State::default()
    };
    let shown = picture(&view, &state, SIZE);
    assert!(shown.contains("Nobody captures on 'eth9'"), "{shown}");
}

#[test]
fn no_size_makes_it_panic() {
    for width in [1, 2, 10, 79, 200] {
        for height in [1, 2, 3, 5, 60] {
            for scroll in [0, 3, usize::MAX] {
                let state = State {
                    scroll,
                    ..State::default()
                };
                picture(&fixture::view(), &state, (width, height));
            }
        }
    }
}

#[test]
fn scrolling_stops_where_the_last_row_shows() {
    let mut state = State::default();
    for _ in 0..10 {
        state.press(KeyCode::Down.into(), 7);
    }
    assert_eq!(state.scroll, 7);
    state.press(KeyCode::Up.into(), 7);
    assert_eq!(state.scroll, 6);
    state.press(KeyCode::End.into(), 7);
    let shown = picture(&fixture::view(), &state, (80, 12));
    assert!(
        !shown.contains("4711") && shown.contains("wpa_supplicant"),
        "{shown}"
    );
    state.press(KeyCode::Home.into(), 6);
    assert!(picture(&fixture::view(), &state, (80, 12)).contains("4711"));
}

#[test]
fn escape_takes_a_filter_back_and_enter_keeps_it() {
    let mut state = State::default();
    let press = |state: &mut State, keys: &[KeyCode]| {
        for &key in keys {
            state.press(key.into(), 0);
        }
    };
    let letter = KeyCode::Char;
    press(
        &mut state,
        &[letter('/'), letter('q'), letter('s'), KeyCode::Enter],
    );
    assert!(state.filter == "qs" && !state.quit && state.typing.is_none());
    press(
        &mut state,
        &[letter('/'), KeyCode::Backspace, letter('x'), KeyCode::Esc],
    );
    assert!(state.filter == "qs" && state.typing.is_none());
}

#[test]
fn escape_clears_a_filter_that_was_kept() {
    let mut state = State {
        filter: "group 42".to_owned(),
        ..State::default()
    };
    let shown = picture(&fixture::view(), &state, SIZE);
    assert!(
        shown.contains("filter group 42  sort") && shown.contains("esc shows all"),
        "{shown}"
    );
    state.press(KeyCode::Esc.into(), 0);
    assert!(state.filter.is_empty() && !state.quit);
    let shown = picture(&fixture::view(), &state, SIZE);
    assert!(shown.contains(" 4711 "), "{shown}");
}

#[test]
fn a_small_screen_has_rows() {
    for height in 1..12 {
        let shown = picture(&fixture::view(), &State::default(), (20, height));
        let rows = shown.lines().filter(|line| line.contains("eth0 6.52 G"));
        assert_eq!(rows.count(), 1, "{height}:\n{shown}");
        let room = room(height, &State::default());
        assert!(room >= usize::from(height).saturating_sub(4).max(1));
    }
    // While the user types, the screen shows the end of a long filter.
    let typing = State {
        typing: Some(String::new()),
        filter: "a long name of a program".to_owned(),
        ..State::default()
    };
    let shown = picture(&fixture::view(), &typing, (20, 4));
    assert!(shown.contains("of a program_"), "{shown}");
}

#[test]
fn q_and_control_c_quit_but_a_help_is_left_first() {
    let mut state = State::default();
    state.press(KeyCode::Char('h').into(), 0);
    state.press(KeyCode::Char('q').into(), 0);
    assert!(!state.help && !state.quit);
    state.press(KeyCode::Char('q').into(), 0);
    assert!(state.quit);
    let mut typing = State {
        typing: Some(String::new()),
        ..State::default()
    };
    typing.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), 0);
    assert!(typing.quit);
}

#[test]
fn all_keys_are_on_the_last_line() {
    assert!(KEYS.chars().count() <= 80);
    let longest = HELP.lines().map(|line| line.chars().count()).max();
    assert!(longest <= Some(80) && HELP.lines().count() <= 23);
}

#[test]
fn a_device_without_figures_is_not_the_busiest() {
    let look = |second| {
        let mut look = fixture::look(second);
        look.devices = vec![
            fixture::device(0, "any", [0; 4]),
            fixture::device(2, "eth0", [5; 4]),
        ];
        look.devices[0].counters = None;
        look
    };
    let line = headline::devices(&fixture::between(&look(1), &look(2)), 80);
    assert!(line.starts_with("busiest: eth0 0 pps"), "{line}");
}

#[test]
fn the_manual_has_every_key_and_column() {
    let page = include_str!("../../../../../docs/man/fanpcap-top.in");
    for key in KEYS
        .split("  ")
        .filter_map(|key| key.trim().split(' ').next())
    {
        let name = match key {
            "\u{2191}\u{2193}" => "Up",
            other => other,
        };
        let forms = [format!("\n.B {name}\n"), format!("\n.BR {name} ")];
        assert!(forms.iter().any(|form| page.contains(form)), "{name}");
    }
    for title in table::head(300).text.split_whitespace().skip(3) {
        assert!(page.contains(&format!("\n.B {title}\n")), "{title}");
    }
}

/// An interface's name may contain any characters except blanks, colons and slashes.
#[test]
fn no_name_writes_to_the_terminal() {
    let name = "\u{1b}[2J\u{9b}1mx";
    let mut look = fixture::look(100);
    look.devices = vec![fixture::device(2, name, [0; 4])];
    let shown = picture(&Rates::default().next(look), &State::default(), SIZE);
    let state = State {
        device: Some(name.to_owned()),
        filter: name.to_owned(),
        ..State::default()
    };
    let nothing = Rates::default().next(fixture::look(100));
    let filter = picture(&nothing, &state, SIZE);
    let unfiltered = State {
        filter: String::new(),
        ..state
    };
    let device = picture(&nothing, &unfiltered, SIZE);
    for shown in [shown, filter, device] {
        let is_unsafe = |letter: char| letter.is_control() && letter != '\n';
        assert!(!shown.contains(is_unsafe), "{shown:?}");
        assert!(shown.contains("?[2J?1mx"), "{shown:?}");
    }
}

#[test]
fn rows_have_the_kind_of_what_they_tell() {
    let kinds = |view: &View, state: &State| {
        let rows = draw(view, state, (80, 9));
        rows.iter().map(|row| row.kind).collect::<Vec<_>>()
    };
    let lossy = kinds(&fixture::view(), &State::default());
    assert_eq!(
        lossy[..4],
        [Kind::Title, Kind::Losing, Kind::Head, Kind::Losing]
    );
    assert_eq!(lossy[8], Kind::Text);
    let mut look = fixture::look(100);
    look.devices = vec![fixture::device(2, "eth0", [0; 4])];
    let quiet = kinds(&Rates::default().next(look), &State::default());
    assert_eq!(
        quiet[..4],
        [Kind::Title, Kind::Text, Kind::Head, Kind::Device]
    );
}
