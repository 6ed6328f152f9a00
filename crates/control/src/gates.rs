//! Features that can be switched off, as `--feature-gates NAME=true,NAME=false`.

use std::collections::BTreeMap;

/// A feature that can be switched. The family that has it names it.
#[derive(Debug, PartialEq, Eq)]
pub struct Gate {
    /// Its name, as users write it.
    pub name: &'static str,
    /// Whether it is on where users say nothing.
    pub default: bool,
}

/// What is switched, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gates(BTreeMap<&'static str, bool>);

impl Gates {
    /// Whether a feature is on.
    pub fn is_on(&self, gate: &Gate) -> bool {
        self.0.get(gate.name).copied().unwrap_or(gate.default)
    }

    /// Reads what users write. `known`: all features that there are.
    pub fn parse(text: &str, known: &[&'static Gate]) -> Result<Self, String> {
        let mut gates = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is not of the form NAME=true"))?;
            let is_on = value.parse().map_err(|_| format!("{name} is {value:?}: use true or false"))?;
            let Some(gate) = known.iter().find(|gate| gate.name == name) else {
                let names: Vec<&str> = known.iter().map(|gate| gate.name).collect();
                return Err(format!("no feature gate {name:?}; there is: {}", names.join(", ")));
            };
            gates.0.insert(gate.name, is_on);
        }
        Ok(gates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAILS: Gate = Gate { name: "Sails", default: true };
    const OARS: Gate = Gate { name: "Oars", default: false };

    #[test]
    fn gates_are_read_by_name() {
        let parse = |text| Gates::parse(text, &[&SAILS, &OARS]);
        let states = |text| parse(text).map(|gates| [&SAILS, &OARS].map(|gate| gates.is_on(gate)));
        assert_eq!(states(""), Ok([true, false]));
        assert_eq!(states("Sails=false, Oars=true"), Ok([false, true]));
        for (text, expected) in [
            ("Rudder=true", "no feature gate \"Rudder\"; there is: Sails, Oars"),
            ("Sails", "NAME=true"),
            ("Sails=on", "use true or false"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
