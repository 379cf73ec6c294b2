//! Reads resolv.conf(5) files.

use std::io;
use std::path::Path;

use cni::{Dns, Error};

pub(super) fn read(path: &Path) -> Result<Dns, Error> {
    let attempt = format!("read ipam.resolvConf {}", path.display());
    // Opening a FIFO would block.
    let text = match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(io::ErrorKind::InvalidInput.into()),
        _ => std::fs::read_to_string(path),
    };
    let text = text.map_err(|error| Error::io(attempt, &error))?;
    Ok(parse(&text))
}

fn parse(text: &str) -> Dns {
    let mut dns = Dns::default();
    for line in text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with(['#', ';']))
    {
        let mut words = line.split_whitespace();
        let keyword = words.next().unwrap_or_default();
        let values = words.map(str::to_owned);
        match keyword {
            "nameserver" => dns.nameservers.extend(values.take(1)),
            "domain" => dns.domain = values.take(1).collect(),
            "search" => dns.search = values.collect(),
            "options" => dns.options.extend(values),
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keywords_of_resolv_conf_are_parsed() {
        let dns = parse(
            "# comment\nnameserver 10.0.0.1\nnameserver 10.0.0.2\ndomain x.test\n\
             search a.test b.test\noptions ndots:5 edns0\n",
        );
        assert_eq!(dns.nameservers, ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(dns.domain, "x.test");
        assert_eq!(dns.search, ["a.test", "b.test"]);
        assert_eq!(dns.options, ["ndots:5", "edns0"]);
    }
}
