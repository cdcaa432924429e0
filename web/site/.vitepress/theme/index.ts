// Without fonts: pages ask for nothing but their own text.
import Theme from "vitepress/theme-without-fonts";
import "./style.css";

export default Theme;
