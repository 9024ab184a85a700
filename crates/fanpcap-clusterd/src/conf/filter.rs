//! The cluster's filter. libpcap compiles it once, for all nodes.

use fanpcap_cluster::{FILTER_CODE, FILTER_TEXT};
use fanpcap_config::report::{Fault, Report, quote};
use fanpcap_select::layout::Lanes;
use fanpcap_select::{Action, Filter, Program};

use super::Conf;

impl Conf {
    /// Compiles the filter in the settings like the pcap filter of a steering program.
    ///
    /// # Errors
    /// Fails if libpcap refuses the filter, or if the filter is too long for nodes.
    pub fn filter(&self) -> Result<Option<Filter>, Report> {
        let Some(filter) = &self.filter else {
            return Ok(None);
        };
        let compiled = self.compile(&filter.value);
        let bad = |why| {
            let message = format!("filter {}: {why}", quote(&filter.value));
            Fault::new("cluster-filter-bad", message).report(filter.place.clone())
        };
        compiled.map(Some).map_err(bad)
    }

    fn compile(&self, text: &str) -> Result<Filter, String> {
        if text.len() > FILTER_TEXT {
            return Err(format!("it is longer than {FILTER_TEXT} bytes"));
        }
        if text.contains(|letter: char| letter.is_control() && letter != '\t') {
            return Err("it has a control character".to_owned());
        }
        let code = fanpcap_pcap::compile_expression(text)?;
        if code.len() > FILTER_CODE {
            return Err(format!(
                "it has {} instructions, more than {FILTER_CODE}",
                code.len()
            ));
        }
        let text = text.to_owned();
        let filter = Filter { text, code };
        // Every node will compile this BPF program, so a filter that is refused must be found here.
        let program = Program {
            selection: self.selection,
            cluster: 0,
            action: Action::PassToNext,
            lanes: Lanes::SHARED,
            filter: Some(filter.clone()),
        };
        program.object().map_err(|error| error.to_string())?;
        Ok(filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(text: &str) -> Result<Option<Filter>, String> {
        let conf = format!("cluster = a\nengine = fixed\nnodes = 1\nfilter = {text}\n");
        let conf = Conf::parse(&conf, "c").map_err(|report| report.to_string())?;
        conf.filter().map_err(|report| report.to_string())
    }

    #[test]
    fn a_filter_is_compiled_or_refused_at_its_place() {
        let good = filter("not port 9100 and ip").unwrap().unwrap();
        assert_eq!(good.text, "not port 9100 and ip");
        assert!(!good.code.is_empty());
        let said = filter("not prot 9100").unwrap_err();
        let start = "c:4:10: filter 'not prot 9100': ";
        assert!(
            said.starts_with(start) && said.contains("syntax error"),
            "{said}"
        );
        let said = filter("ip \u{b} or arp").unwrap_err();
        assert!(said.contains("it has a control character"), "{said}");
        let long = vec!["port 1"; 400].join(" or ");
        assert!(
            filter(&long)
                .unwrap_err()
                .contains("is longer than 2048 bytes")
        );
        let said = filter("ip\nmode = capture\nanalyzers = 1.2.3.4:5").unwrap_err();
        assert!(said.contains("not 'capture'"), "{said}");
    }
}
