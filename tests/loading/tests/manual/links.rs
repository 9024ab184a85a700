//! Checks that no installed document has a link to a file that is not installed.

use std::fs;

use anyhow::{Result, ensure};

use crate::{Tree, files};

#[test]
fn links_between_installed_documents_lead_somewhere() -> Result<()> {
    let tree = Tree::install()?;
    let documents = tree.prefix().join("share/doc/fanpcap");
    let (mut links, mut dead) = (0, Vec::new());
    for dir in [documents.clone(), documents.join("decisions")] {
        for page in files(&dir)?
            .iter()
            .filter(|it| it.extension().is_some_and(|it| it == "md"))
        {
            let text = fs::read_to_string(page)?;
            for link in text
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split(')').next())
            {
                let path = link.split('#').next().unwrap_or_default();
                if path.is_empty() || path.contains(':') {
                    continue;
                }
                links += 1;
                if !dir.join(path).exists() {
                    dead.push(format!("{}: {link}", page.display()));
                }
            }
        }
    }
    ensure!(
        links > 40 && dead.is_empty(),
        "{links} links, dead: {dead:#?}"
    );
    Ok(())
}
