select {inbox_accept}($1::text, $2::text::uuid, $3::text, $4::text, decode($5::text, 'hex')) as answer;
