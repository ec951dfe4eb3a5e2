listen {channel};
