-- The links of chains of evidence. A ledger without a chain has no row. They stay when their rows go.
CREATE TABLE link (
    chain     INTEGER NOT NULL,
    number    INTEGER NOT NULL,
    tenant    TEXT NOT NULL,
    at        INTEGER NOT NULL,
    body      BLOB NOT NULL,                  -- digests of rows
    signature BLOB NOT NULL,
    PRIMARY KEY (chain, number)
) STRICT, WITHOUT ROWID;
