select answer, given, remaining, stored, tries, lost from {inbox_claim}($1, $2, $3, $4, $5, $6, $7);
